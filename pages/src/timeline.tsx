/** The timeline: which owner held which partition and when, expired leases, and takeovers. */

import { Box, Button, ButtonGroup, Flex, Input, Span, Text } from "@chakra-ui/react";
import { Fragment, useCallback } from "react";

import { request, clock } from "./api";
import { ViewChoice, Choice, Legend } from "./chart_controls";
import { useZone } from "./clock";
import { Icon } from "./icons";
import { usePolling } from "./live";
import { EmptyState, LiveContent } from "./problems";
import { SmallTable } from "./small_table";
import { ENDS } from "./states";
import { plural } from "./text";
import { formatInstant } from "./time";
import { Chart } from "./timeline_chart";
import { windowOf, WINDOWS } from "./timeline_layout";
import { useTypedText } from "./typing";
import { sourceApi, withParameters } from "./urls";
import { Chip, Instant, Owner, Shortened, PageLink } from "./widgets";
import type { Timeline } from "./schema";
import type { Place, Change } from "./types";

const LIMIT = 200;
/** The past changes little: a worker may write its history a moment later. */
const PAST_EVERY_SECONDS = 30;

/** Keep a window fresh: one that ends now moves with the time. */
function useWindow(place: Place, parameters: URLSearchParams, isLive: boolean) {
  const [name, until, text] = ["window", "until", "search"].map((each) => parameters.get(each) ?? "");
  const key = JSON.stringify(["timeline", place.connection, place.source, name, until, text]);
  const poll = (signal: AbortSignal): Promise<Timeline> => {
    const window = windowOf(new URLSearchParams({ window: name, until }), clock.now());
    const query = new URLSearchParams({
      since: new Date(window.since).toISOString(),
      until: new Date(window.until).toISOString(),
      limit: String(LIMIT),
    });
    if (text !== "") query.set("search", text);
    return request(sourceApi(place.connection, place.source, `timeline?${query}`), { signal });
  };
  return usePolling(key, poll, isLive ? {} : { every: PAST_EVERY_SECONDS });
}

function ListView({ response, search }: { response: Timeline; search: string }) {
  const rows = response.partitions
    .flatMap((line) =>
      line.holdings.map((holding, index) => ({
        key: `${line.partition_key} ${index}`,
        partition: line.partition_key,
        holding,
      })),
    )
    .sort((a, b) => ((a.holding.began_at ?? "") < (b.holding.began_at ?? "") ? 1 : -1));
  return (
    <Box overflow="auto" flex={1} minH={0}>
      <SmallTable
        label="Owners of partitions over time"
        rows={rows}
        keyOf={(row) => row.key}
        columns={[
          {
            name: "partition",
            title: "Partition",
            cell: (row) => (
              <PageLink
                to={{ search: withParameters(search, { partition: row.partition }) }}
                minW={0}
                maxW="full"
                aria-label={row.partition}
              >
                <Shortened text={row.partition} />
              </PageLink>
            ),
          },
          { name: "owner", title: "Owner", cell: ({ holding }) => <Owner owner={holding.owner} /> },
          { name: "began", title: "From", cell: ({ holding }) => <Instant instant={holding.began_at} /> },
          {
            name: "ended",
            title: "To",
            cell: ({ holding }) =>
              holding.ended_at === null ? "now" : <Instant instant={holding.ended_at} withAge={false} />,
          },
          { name: "end", title: "Ended", cell: ({ holding }) => <Chip state={holding.end} states={ENDS} /> },
          {
            name: "reason",
            title: "Reason",
            cell: ({ holding }) => (
              <Text overflowWrap="anywhere" fontSize="xs">
                {holding.reason}
                {holding.by ? ` (${holding.by})` : ""}
              </Text>
            ),
          },
        ]}
      />
    </Box>
  );
}

/** The page. */
export function TimelinePage({
  place,
  parameters,
  change,
  search,
}: {
  place: Place;
  parameters: URLSearchParams;
  change: Change;
  search: string;
}) {
  const zone = useZone();
  const window = windowOf(parameters, clock.now());
  const live = useWindow(place, parameters, window.isLive);
  const isList = parameters.get("as") === "list";
  const searched = parameters.get("search") ?? "";
  const [text, setText] = useTypedText(searched, (typed) => change({ search: typed }));
  const onOpen = useCallback((key: string) => change({ partition: key }, { keep: true }), [change]);

  const move = (share: number) => {
    const until = window.until + share * WINDOWS[window.name] * 1000;
    change({ until: until >= clock.now() ? null : new Date(until).toISOString() });
  };
  return (
    <Flex direction="column" flex={1} minH={0} gap={2}>
      <Flex gap={2} wrap="wrap" align="center">
        <Input
          size="sm"
          type="search"
          w={{ base: "full", sm: "220px" }}
          aria-label="Key contains"
          placeholder="Key contains"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <Choice
          label="Time range"
          value={window.name}
          options={Object.keys(WINDOWS).map((name) => [name, name] as [string, string])}
          onChange={(name) => change({ window: name === "1h" ? null : name })}
        />
        <ButtonGroup size="xs" variant="outline" attached role="group" aria-label="Move in time">
          <Button onClick={() => move(-0.5)}>
            <Span aria-hidden>‹</Span>
            Earlier
          </Button>
          <Button onClick={() => move(0.5)} disabled={window.isLive}>
            Later
            <Span aria-hidden>›</Span>
          </Button>
          <Button onClick={() => change({ until: null })} aria-pressed={window.isLive}>
            Now
          </Button>
        </ButtonGroup>
        <ViewChoice value={isList ? "list" : "picture"} onChange={(value) => change({ as: value })} />
        <Text fontSize="xs" color="fg.muted" ms={{ xl: "auto" }}>
          {window.isLive
            ? `last ${window.name}`
            : `${formatInstant(new Date(window.since).toISOString(), zone)} to ${formatInstant(new Date(window.until).toISOString(), zone)}`}
          {` · ${zone}`}
        </Text>
      </Flex>
      <LiveContent live={live} what="the timeline" connection={place.connection} rows={10}>
        {(response) => (
          <Fragment key="response">
            {!response.has_history && (
              <Flex gap={2} align="center" fontSize="sm" color="fg.muted">
                <Icon name="alert" />
                No history is kept: only current leases are shown. Set history_days of the connection above 0.
              </Flex>
            )}
            {!response.complete && (
              <Text fontSize="sm" color="fg.muted">
                {`Incomplete: only ${plural(response.partitions.length, "partition")} shown. Search, or choose a shorter time range.`}
              </Text>
            )}
            {response.partitions.length === 0 ? (
              <EmptyState
                title="No leases in this time range"
                text={
                  searched
                    ? `No partition with “${searched}” in its key had an owner.`
                    : "Choose a longer or an earlier time range."
                }
                kind="empty"
              />
            ) : isList ? (
              <ListView response={response} search={search} />
            ) : (
              <>
                <Legend
                  entries={[
                    {
                      label: "each colour is a worker",
                      sign: (
                        <Flex as="span" gap="2px">
                          {["blue", "teal", "pink"].map((palette) => (
                            <Box
                              as="span"
                              key={palette}
                              w="10px"
                              h="10px"
                              borderRadius="2px"
                              bg={`${palette}.muted`}
                              borderWidth={1}
                              borderColor={`${palette}.solid`}
                            />
                          ))}
                        </Flex>
                      ),
                    },
                    { label: `${ENDS.expired.label} or ${ENDS["taken over"].label}`, palette: ENDS.expired.palette },
                    { label: `${ENDS.failed.label} or ${ENDS.parked.label}`, palette: ENDS.failed.palette },
                    ENDS.completed,
                    ENDS.released,
                  ]}
                />
                <Box flex={1} minH={0} display="flex" flexDirection="column">
                  <Chart response={response} onOpen={onOpen} />
                </Box>
              </>
            )}
          </Fragment>
        )}
      </LiveContent>
    </Flex>
  );
}
