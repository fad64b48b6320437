/** The overview: every source that the user may view, or every supervisor, those with problems first. */

import {
  Badge,
  Box,
  Button,
  Flex,
  Grid,
  Heading,
  Input,
  InputGroup,
  LinkBox,
  LinkOverlay,
  Span,
  Stack,
  Text,
} from "@chakra-ui/react";
import { memo, useCallback, useEffect, useRef, useState } from "react";
import { Link as RouterLink, useLocation, useNavigate } from "react-router-dom";

import { Choice } from "./chart_controls";
import { useNow } from "./clock";
import { AlarmLine, Freshness, PartialBadge, StatusBar, useTitle } from "./frame";
import { Icon } from "./icons";
import { useLive } from "./live";
import { ProblemPage, ProblemPart, Loading, EmptyState, LiveContent } from "./problems";
import { byUrgency, connectionRank, inOrder, segmentsOf, worstLevel } from "./states";
import { isUnhealthy } from "./supervisor_states";
import { Supervisors } from "./supervisors";
import { countText, plural, rateText, roughText } from "./text";
import { duration, lagText, longestLeaseText, secondsUntil } from "./time";
import { useTypedText } from "./typing";
import { pathOf, withParameters } from "./urls";
import { CompleteUntil } from "./watermark";
import { Dot, Statistic } from "./widgets";
import type { ConnectionRow, SourceCard } from "./schema";
import type { Parameter, Live } from "./types";

const BAR = 7;
const GAP = 2;
const TALL = 26;

/** The number of partitions that were completed in each five minutes of the last hour. */
function Trend({ completed }: { completed: (number | null)[] }) {
  if (completed.every((count) => !count)) return null;
  const maximum = Math.max(1, ...completed.map((count) => count ?? 0));
  const sum = completed.reduce((total: number, count) => total + (count ?? 0), 0);
  const text = `${plural(sum, "partition")} completed in the last hour`;
  return (
    <Flex align="flex-end" gap={2} flexShrink={0} whiteSpace="nowrap" title={`${text}; each bar is 5 min`}>
      <svg width={completed.length * (BAR + GAP)} height={TALL} role="img" aria-label={text}>
        {completed.map((count, index) => {
          const height = count ? Math.max(3, (count / maximum) * TALL) : 1;
          return (
            <rect
              key={index}
              x={index * (BAR + GAP)}
              y={TALL - height}
              width={BAR}
              height={height}
              rx={1}
              fill={count ? "var(--chakra-colors-green-solid)" : "var(--chakra-colors-border-emphasized)"}
            />
          );
        })}
      </svg>
      <Text fontSize="xs" color="fg.muted" lineHeight="1.1" pb="1px">
        {`${roughText(sum)} completed`}
        <br />
        in 1 h
      </Text>
    </Flex>
  );
}

function Legend({ card }: { card: SourceCard }) {
  const segments = segmentsOf(card);
  return (
    <Flex wrap="wrap" columnGap={3} rowGap={0.5} fontSize="xs" color="fg.muted" mt={1.5} minH={5}>
      {segments.length === 0 && "No partitions yet."}
      {segments.map((each) => (
        <Flex key={each.state} as="span" align="center" gap={1}>
          <Dot palette={each.palette} size="7px" />
          <Span color="fg" fontVariantNumeric="tabular-nums">
            {roughText(each.count)}
          </Span>
          {each.label.toLowerCase()}
        </Flex>
      ))}
    </Flex>
  );
}

function ExpiresIn({ instant }: { instant: string | null }) {
  const now = useNow();
  const left = secondsUntil(instant, now);
  return left > 0 ? `the next expires in ${duration(left, { short: true })}` : "the next is overdue";
}

/** The summary of a source. The whole card is a link to it. */
const Card = memo(function Card({ card }: { card: SourceCard }) {
  const level = worstLevel(card);
  const accent =
    level === "error"
      ? "red.solid"
      : level === "warning"
        ? "orange.solid"
        : card.suspended
          ? "purple.solid"
          : "border.emphasized";
  return (
    <LinkBox
      as="article"
      aria-label={card.source}
      data-source={card.source}
      borderWidth={1}
      borderColor="border.emphasized"
      borderStartWidth={4}
      borderStartColor={accent}
      borderRadius="md"
      bg="bg"
      p={4}
      minW={0}
      display="flex"
      flexDirection="column"
      gap={3}
      transition="box-shadow 0.15s"
      _hover={{ boxShadow: "md" }}
      _focusWithin={{ boxShadow: "md" }}
    >
      <Flex justify="space-between" align="flex-start" gap={2} wrap="wrap">
        <Box minW={0} flex="1 1 150px">
          <Heading as="h3" size="md" truncate title={card.source} dir="auto">
            <LinkOverlay asChild>
              <RouterLink to={pathOf({ connection: card.connection_id, source: card.source })}>
                {card.source}
              </RouterLink>
            </LinkOverlay>
          </Heading>
          <Flex gap={1.5} mt={1} minH={5} align="center">
            {card.kind && (
              <Badge size="xs" variant="outline" colorPalette="gray">
                {card.kind}
              </Badge>
            )}
            {card.suspended && (
              <Badge size="xs" colorPalette="purple" variant="subtle" title={card.suspended.reason}>
                Suspended
              </Badge>
            )}
            <PartialBadge card={card} size="xs" />
          </Flex>
        </Box>
        <Trend completed={card.completed} />
      </Flex>
      {card.alarms.length > 0 && (
        <Stack gap={1}>
          {card.alarms.slice(0, 3).map((alarm, number) => (
            <AlarmLine
              key={`${alarm.about} ${number}`}
              alarm={alarm}
              place={{ connection: card.connection_id, source: card.source }}
            />
          ))}
          {card.alarms.length > 3 && (
            <Text fontSize="xs" color="fg.muted">
              {`and ${card.alarms.length - 3} more`}
            </Text>
          )}
        </Stack>
      )}
      <Box>
        <StatusBar card={card} />
        <Legend card={card} />
      </Box>
      <Grid as="dl" templateColumns="repeat(auto-fill, minmax(100px, 1fr))" gap={3} mt="auto">
        <Statistic name="Lag">{lagText(card.lag)}</Statistic>
        <Statistic name="Complete until">
          <CompleteUntil watermark={card.watermark} />
        </Statistic>
        <Statistic name="Throughput">{rateText(card.throughput)}</Statistic>
        <Statistic name="Workers">{countText(card.workers)}</Statistic>
        <Statistic name="Longest wait">
          {card.oldest_waiting_seconds === null ? "–" : duration(card.oldest_waiting_seconds, { short: true })}
        </Statistic>
        <Statistic name="Longest lease">{longestLeaseText(card.oldest_lease)}</Statistic>
        <Statistic name="Pending batches">{countText(card.pending_sets)}</Statistic>
      </Grid>
      {card.pending_sets > 0 && card.next_set_expires_at && (
        <Text fontSize="xs" color="fg.muted" mt={-2}>
          {"Acknowledgments: "}
          <ExpiresIn instant={card.next_set_expires_at} />
        </Text>
      )}
    </LinkBox>
  );
});

function Connection({
  connection,
  show,
  search,
  isAlone,
  onLive,
}: {
  connection: ConnectionRow;
  show: "sources" | "supervisors";
  search: string;
  isAlone: boolean;
  onLive: (connection: string, live: Live<any> | null) => void;
}) {
  const live = useLive(
    connection.problem === null ? `connections/${encodeURIComponent(connection.connection_id)}/${show}` : null,
  );
  const { problem, nextAt, response } = live;
  const id = connection.connection_id;
  useEffect(() => onLive(id, live), [problem, nextAt, response, id, onLive]);
  useEffect(() => () => onLive(id, null), [id, onLive]);
  return (
    <Box as="section" aria-label={`Connection ${id}`} mb={6}>
      <Flex align="baseline" gap={2} mb={2}>
        <Heading as="h2" size="sm" color="fg.muted" fontWeight="semibold" overflowWrap="anywhere" minW={0}>
          {id}
        </Heading>
        {!connection.may_change && (
          <Text fontSize="xs" color="fg.muted" flexShrink={0}>
            read only
          </Text>
        )}
        {response && !isAlone && (
          <Text fontSize="xs" color="fg.muted" flexShrink={0}>
            {plural(response[show].length, show.slice(0, -1))}
          </Text>
        )}
      </Flex>
      {connection.problem !== null ? (
        <ProblemPart
          title="This connection cannot be used"
          text={connection.problem}
          icon="plug"
          kind="refused"
          topic="connection"
        />
      ) : (
        <LiveContent live={live} what={show} isPart connection={id} rows={3}>
          {(found) =>
            show === "sources" ? (
              <Cards key={show} cards={found.sources} search={search} />
            ) : (
              <Supervisors
                key={show}
                connection={connection}
                statuses={found.supervisors}
                search={search}
                refresh={live.refresh}
              />
            )
          }
        </LiveContent>
      )}
    </Box>
  );
}

function Cards({ cards, search }: { cards: SourceCard[]; search: string }) {
  const found = cards.filter((card) => card.source.toLowerCase().includes(search.toLowerCase()));
  const shown = useRef<string[]>([]);
  const [isPointed, setPointed] = useState(false);
  // While the user points at a card, no card moves: the click would hit another one.
  if (!isPointed) shown.current = byUrgency(found).map((card) => card.source);
  const sorted = isPointed ? inOrder(found, shown.current) : byUrgency(found);
  if (cards.length === 0) {
    return (
      <EmptyState
        title="No sources yet"
        text="A source appears here after a DAG has created its first partitions. Start a run of its DAG."
        icon="tree"
      />
    );
  }
  if (found.length === 0)
    return <EmptyState title="No source matches" text={`No source name contains “${search}”.`} kind="empty" />;
  return (
    <Grid
      templateColumns="repeat(auto-fill, minmax(min(100%, 340px), 1fr))"
      gap={4}
      onPointerEnter={() => setPointed(true)}
      onPointerLeave={() => setPointed(false)}
    >
      {sorted.map((card) => (
        <Card key={card.source} card={card} />
      ))}
    </Grid>
  );
}

/** The page. */
export function Overview() {
  const { search } = useLocation();
  const navigate = useNavigate();
  const parameters = new URLSearchParams(search);
  const only = parameters.get("connection");
  const show = parameters.get("show") === "supervisors" ? "supervisors" : "sources";
  const live = useLive("connections", { every: 30 });
  const [known, onLive] = useResponses();
  const worst = known.find(([, each]) => each.problem !== null) ?? known[0];
  useTitle(null);

  const change = (changes: Record<string, Parameter>) =>
    navigate({ search: withParameters(globalThis.location.search, changes) }, { replace: true });
  const [text, setText] = useTypedText(parameters.get("q") ?? "", (typed) => change({ q: typed }));
  const responses = new Map(known.map(([id, { response }]) => [id, response]));

  const rank = (each: ConnectionRow) => {
    const response = responses.get(each.connection_id);
    return connectionRank(each, response?.sources ?? [], response?.supervisors?.some(isUnhealthy));
  };
  const connections = (live.response?.connections ?? [])
    .filter((each: ConnectionRow) => only === null || each.connection_id === only)
    .sort((a: ConnectionRow, b: ConnectionRow) => rank(a) - rank(b));
  return (
    <>
      <Flex justify="space-between" align="center" gap={3} mb={4} wrap="wrap">
        <Flex gap={4} align="center">
          <Heading as="h1" size="xl">
            Leases
          </Heading>
          <Choice
            label="Show"
            value={show}
            options={[
              ["sources", "Sources"],
              ["supervisors", "Supervisors"],
            ]}
            onChange={(name) => change({ show: name === "sources" ? null : name })}
          />
        </Flex>
        <Flex gap={3} align="center" flex={{ base: "1 1 100%", md: "0 1 auto" }}>
          <InputGroup startElement={<Icon name="search" />} maxW={{ md: "260px" }}>
            <Input
              size="sm"
              type="search"
              placeholder="Find a source"
              aria-label="Find a source"
              value={text}
              onChange={(event) => setText(event.target.value)}
            />
          </InputGroup>
          <Freshness live={worst?.[1] ?? live} />
        </Flex>
      </Flex>
      {only !== null && (
        <Flex mb={3} gap={2} align="center" fontSize="sm" color="fg.muted">
          <Text as="span" minW={0} overflowWrap="anywhere">
            {`Connection ${only} only`}
          </Text>
          <Button flexShrink={0} size="2xs" variant="outline" onClick={() => change({ connection: null })}>
            Show all
          </Button>
        </Flex>
      )}
      {live.response === null ? (
        live.problem === null ? (
          <Loading what="connections" rows={4} height={24} />
        ) : (
          <ProblemPage problem={live.problem} nextAt={live.nextAt} refresh={live.refresh} />
        )
      ) : connections.length === 0 ? (
        <EmptyState
          title="No coordination connection that you may view"
          text="Leases are kept in the store of a connection of type “coordination”. Create one under Admin, Connections, or ask an Airflow administrator for “can read” on Connections."
          icon="plug"
          kind="none"
        />
      ) : (
        connections.map((connection: ConnectionRow) => (
          <Connection
            key={`${show} ${connection.connection_id}`}
            connection={connection}
            show={show}
            search={text}
            onLive={onLive}
            isAlone={connections.length === 1}
          />
        ))
      )}
    </>
  );
}

/**
 * Keep the latest response of each connection; return them, and the function that sets one: null once the connection is
 * gone.
 */
function useResponses(): [[string, Live<any>][], (connection: string, live: Live<any> | null) => void] {
  const [known, setKnown] = useState(new Map() as Map<string, Live<any>>);
  const note = useCallback(
    (id: string, live: Live<any> | null) =>
      setKnown((before) => {
        const after = new Map(before);
        if (live === null) after.delete(id);
        else after.set(id, live);
        return after;
      }),
    [],
  );
  return [[...known], note];
}
