/** The drawer of one partition: its details, and the actions on it. */

import { Badge, Box, CloseButton, Drawer, Flex, Grid, Portal, Stack, Text } from "@chakra-ui/react";
import { useEffect, useRef, useState } from "react";

import { PartitionActionButtons, ActionDialog } from "./actions";
import { Icon } from "./icons";
import { useLive } from "./live";
import { Time } from "./partition_cells";
import { ProblemPage, Loading, EmptyState, StaleNote } from "./problems";
import { SET_STATES, stateOf, STATES } from "./states";
import { countText, ownerLabel, plural } from "./text";
import { lagText } from "./time";
import { pathOf, sourceApi, taskPath, withParameters } from "./urls";
import {
  RelativeTime,
  Chip,
  CopyButton,
  Dot,
  FactList,
  Instant,
  ManualLink,
  Owner,
  Section,
  Shortened,
  PageLink,
} from "./widgets";
import type {
  ConnectionRow,
  LandedFacts,
  Owner as ApiOwner,
  PartitionDetail,
  ShardNode,
  TransitionFacts,
} from "./schema";
import type { Place, AcknowledgmentSet } from "./types";

/** A text with a button that copies it. */
function Copied({ text, label, mono = true }: { text: string; label: string; mono?: boolean }) {
  if (text === null || text === undefined || text === "") return "–";
  return (
    <Flex align="flex-start" gap={1} minW={0}>
      <Text
        fontFamily={mono ? "mono" : undefined}
        fontSize={mono ? "xs" : "sm"}
        pt={mono ? "2px" : 0}
        overflowWrap="anywhere"
        minW={0}
      >
        {text}
      </Text>
      <CopyButton text={String(text)} label={label} />
    </Flex>
  );
}

function Block({ text, label, maxH = "320px" }: { text: string; label: string; maxH?: string }) {
  return (
    <Box position="relative">
      <Box
        as="pre"
        role="group"
        tabIndex={0}
        aria-label={label}
        fontFamily="mono"
        fontSize="xs"
        bg="bg.muted"
        color="fg"
        borderRadius="md"
        p={3}
        pe={10}
        m={0}
        overflow="auto"
        maxH={maxH}
        whiteSpace="pre-wrap"
        overflowWrap="anywhere"
      >
        {text}
      </Box>
      <Box position="absolute" top={1.5} insetInlineEnd={1.5}>
        <CopyButton text={text} label={`Copy: ${label}`} />
      </Box>
    </Box>
  );
}

/** The owner of a partition: its task try, its log, and its full name. */
function OwnerFacts({ owner }: { owner: ApiOwner }) {
  const path = taskPath(owner);
  return (
    <Stack gap={0.5} minW={0}>
      {path ? (
        <Flex gap={2} align="center" wrap="wrap">
          <Owner owner={owner} />
          <PageLink to={path} fontSize="xs" data-log>
            {"Task instance and log "}
            <Icon name="link" size={3} />
          </PageLink>
        </Flex>
      ) : (
        <Shortened text={ownerLabel(owner)} />
      )}
      {owner.dag_id && (
        <Text fontSize="xs" color="fg.muted" overflowWrap="anywhere">
          {`DAG ${owner.dag_id}, run ${owner.run_id}, host ${owner.host}`}
        </Text>
      )}
      <Copied text={owner.name} label="Copy the name of the owner" />
    </Stack>
  );
}

function Landed({ batches }: { batches: LandedFacts[] }) {
  return (
    <Section
      title="Landed batches, not delivered"
      aside={
        <Text fontSize="xs" color="fg.muted">
          {plural(batches.length, "batch", "batches")}
        </Text>
      }
    >
      <Stack gap={2}>
        {batches.map((batch) => (
          <Box
            key={batch.batch_id + batch.start}
            borderWidth={1}
            borderColor="border"
            borderRadius="md"
            p={2}
            fontSize="sm"
          >
            <Flex justify="space-between" gap={2} wrap="wrap">
              <Badge
                variant="subtle"
                colorPalette={{ rejected: "red", acknowledged: "green", waiting: "purple" }[batch.state] ?? "gray"}
              >
                {batch.state}
              </Badge>
              <Text fontVariantNumeric="tabular-nums">{plural(batch.records, "record")}</Text>
            </Flex>
            <Copied text={batch.batch_id} label="Copy the id of the batch" />
            <Text fontFamily="mono" fontSize="xs" color="fg.muted" overflowWrap="anywhere">
              {`(${batch.start || "start"}, ${batch.end}]`}
            </Text>
            {batch.file && <Copied text={batch.file} label="Copy the location of the file" />}
          </Box>
        ))}
      </Stack>
    </Section>
  );
}

function Sets({ sets, place }: { sets: AcknowledgmentSet[]; place: Place }) {
  return (
    <Section title="Acknowledgment sets">
      <Stack gap={2}>
        {sets.map((set) => {
          const owed = Object.entries(set.references)
            .filter(([, count]) => count > 0)
            .map(([handle]) => handle);
          return (
            <Box key={set.set_id} borderWidth={1} borderColor="border" borderRadius="md" p={2} fontSize="sm">
              <Flex gap={2} align="center" wrap="wrap">
                <Chip state={set.state} states={SET_STATES} />
                {set.state === "PENDING" ? (
                  <Text>
                    {"expires "}
                    <RelativeTime instant={set.expires_at} />
                  </Text>
                ) : (
                  set.ended_at && (
                    <Text>
                      {"ended "}
                      <RelativeTime instant={set.ended_at} />
                    </Text>
                  )
                )}
                <PageLink to={{ search: "", pathname: pathOf({ ...place, page: "acknowledgments" }) }} fontSize="xs">
                  All pending sets
                </PageLink>
              </Flex>
              {owed.length > 0 && <Text overflowWrap="anywhere">{`Missing handles: ${owed.join(", ")}`}</Text>}
              {set.reason && (
                <Text color="fg.muted" overflowWrap="anywhere">
                  {set.reason}
                </Text>
              )}
              <Copied text={set.set_id} label="Copy the id of the set" />
            </Box>
          );
        })}
      </Stack>
    </Section>
  );
}

/** The history of a partition, the latest transition first. */
function History({ transitions, isKept }: { transitions: TransitionFacts[]; isKept: boolean }) {
  if (transitions.length === 0) {
    return (
      <Text fontSize="sm" color="fg.muted">
        {isKept
          ? "The history has no change of this partition."
          : "No history is kept. Set history_days of the connection above 0."}
      </Text>
    );
  }
  return (
    <Box as="ol" listStyleType="none" fontSize="sm">
      {transitions.map((each, index) => {
        const palette = paletteOf(each);
        return (
          <Grid
            as="li"
            key={`${each.at} ${index}`}
            data-palette={palette}
            templateColumns="16px minmax(0, 1fr)"
            columnGap={2}
          >
            <Flex direction="column" align="center" aria-hidden>
              <Box pt="6px">
                <Dot palette={palette} size="9px" />
              </Box>
              {index < transitions.length - 1 && <Box w="1px" flex={1} bg="border.emphasized" mt={1} />}
            </Flex>
            <Box pb={3} minW={0}>
              <Flex gap={2} justify="space-between" wrap="wrap">
                <Text fontWeight="medium" overflowWrap="anywhere" minW={0}>
                  {each.reason}
                </Text>
                <Box color="fg.muted" fontSize="xs">
                  <Instant instant={each.at} />
                </Box>
              </Flex>
              <Text fontSize="xs" color="fg.muted">
                {`${each.previous_status} → ${each.status ?? "deleted"}`}
                {each.by ? ` by ${each.by}` : ""}
              </Text>
              {(each.owner ?? each.previous_owner) && (
                <Flex fontSize="xs" gap={1} minW={0}>
                  {each.owner ? "to" : "from"}
                  <Owner owner={each.owner ?? each.previous_owner} fontSize="xs" />
                </Flex>
              )}
            </Box>
          </Grid>
        );
      })}
    </Box>
  );
}

const PALETTES_OF_KINDS: Record<string, string> = { failed: "red", "taken over": "orange" };

const PALETTES_OF_STATUSES: Record<string, string> = { ASSIGNED: "cyan", COMPLETED: "green", CLOSED: "yellow" };

function paletteOf({ kind, status }: { kind: string; status: string | null }) {
  return PALETTES_OF_KINDS[kind] ?? PALETTES_OF_STATUSES[status ?? ""] ?? "gray";
}

/** The shard of a partition, with links to its relatives. */
function Shard({ row, search }: { row: PartitionDetail; search: string }) {
  const shard = row.details.shard as ShardNode;
  const prefix = row.partition_key.endsWith(shard.shard_id) ? row.partition_key.slice(0, -shard.shard_id.length) : null;

  const relatives = (ids: string[]) =>
    ids.length === 0 ? (
      "none"
    ) : (
      <Flex gap={2} wrap="wrap">
        {ids.map((id) =>
          prefix === null ? (
            <span key={id}>{id}</span>
          ) : (
            <PageLink key={id} to={{ search: withParameters(search, { partition: prefix + id }) }}>
              {id}
            </PageLink>
          ),
        )}
      </Flex>
    );
  return (
    <Section title="Shard">
      <FactList
        facts={[
          ["Parents", relatives(shard.parents)],
          ["Children", relatives(shard.children)],
          shard.starting_hash_key !== null && [
            "First hash key",
            <Copied text={shard.starting_hash_key} label="Copy the first hash key" />,
          ],
          shard.ending_hash_key !== null && [
            "Last hash key",
            <Copied text={shard.ending_hash_key} label="Copy the last hash key" />,
          ],
          ["Ended", shard.is_ended ? "yes, everything is read" : "no"],
        ]}
      />
    </Section>
  );
}

function Details({
  row,
  place,
  connection,
  search,
  refresh,
}: {
  row: PartitionDetail;
  place: Place;
  connection: ConnectionRow | null;
  search: string;
  refresh: () => void;
}) {
  const [action, setAction] = useState<string | null>(null);
  return (
    <Stack gap={6}>
      <Box>
        <Flex gap={2} align="center" wrap="wrap" mb={2}>
          <Chip state={row.state} size="md" />
          <Text fontVariantNumeric="tabular-nums">
            <Time row={row} />
          </Text>
        </Flex>
        <Text fontSize="sm" color="fg.muted" mb={3}>
          {stateOf(row.state, STATES).meaning}
        </Text>
        <Flex gap={2} wrap="wrap" align="center">
          <PartitionActionButtons rows={[row]} connection={connection} onPick={setAction} />
        </Flex>
      </Box>
      {row.last_error && (
        <Section title={row.attempts > 0 ? `Failed ${plural(row.attempts, "time")} in a row` : "Last error"}>
          <Block text={row.last_error} label="last error" maxH="180px" />
        </Section>
      )}
      <Section title="Now">
        <FactList
          facts={[
            ["Key", <Copied text={row.partition_key} label="Copy the key" />],
            row.owner && ["Owner", <OwnerFacts owner={row.owner} />],
            row.held_since && ["Held since", <Instant instant={row.held_since} />],
            row.leased_until && ["Lease ends", <Instant instant={row.leased_until} />],
            row.reopen_at && row.state !== "parked" && ["Reopens", <Instant instant={row.reopen_at} />],
            ["UNASSIGNED", "COMPLETED"].includes(row.status) && [
              row.status === "COMPLETED" ? "Completed" : "Waiting since",
              <Instant instant={row.priority} />,
            ],
            ["Lag", lagText(row.lag)],
            ["Position", <Copied text={row.position ?? ""} label="Copy the position" />],
            row.items !== null && ["Items", `${countText(row.items_done ?? 0)} of ${countText(row.items)}`],
            ["Closed", plural(row.closed_count, "time")],
            [
              "Status, version",
              <Flex gap={1} align="center">
                {`${row.status}, ${row.version}`}
                <CopyButton text={String(row.version)} label="Copy the version" />
              </Flex>,
            ],
          ]}
        />
      </Section>
      {row.landed.length > 0 && <Landed batches={row.landed} />}
      {row.acknowledgment_sets.length > 0 && (
        <Sets sets={row.acknowledgment_sets as AcknowledgmentSet[]} place={place} />
      )}
      {row.gaps.length > 0 && (
        <Section title="Lost data" aside={<ManualLink topic="data-loss" />}>
          <Stack as="ul" ps={4} gap={1} fontSize="sm" color="red.fg">
            {row.gaps.map((gap) => (
              <Box as="li" key={gap} overflowWrap="anywhere">
                {gap}
              </Box>
            ))}
          </Stack>
        </Section>
      )}
      {row.failed_items.length > 0 && (
        <Section title="Unreadable items" aside={<ManualLink topic="unreadable" />}>
          <Stack as="ul" ps={4} gap={1} fontSize="sm">
            {row.failed_items.map((each, index) => (
              <Box as="li" key={index} overflowWrap="anywhere">
                {each.item === null ? "" : `Item ${each.item}: `}
                {each.reason}
              </Box>
            ))}
          </Stack>
        </Section>
      )}
      {row.details.shard !== undefined && <Shard row={row} search={search} />}
      <Section title="History">
        <History transitions={row.transitions} isKept={row.has_history} />
      </Section>
      <Section
        {...(row.unreadable_progress === null
          ? { title: "Progress" }
          : { title: "Progress (unreadable)", aside: <ManualLink topic="unreadable" /> })}
      >
        <Block text={row.unreadable_progress ?? JSON.stringify(row.progress, null, 2)} label="progress" />
      </Section>
      {action !== null && (
        <ActionDialog
          place={place}
          action={action}
          rows={[row]}
          onClose={() => {
            setAction(null);
            refresh();
          }}
        />
      )}
    </Stack>
  );
}

/**
 * The drawer.
 *
 * @param props
 *     `connection` is the row of the place's connection in `/connections`
 */
export function PartitionDrawer({
  place,
  connection,
  partitionKey,
  search,
  onClose,
}: {
  place: Place;
  connection: ConnectionRow | null;
  partitionKey: string;
  search: string;
  onClose: () => void;
}) {
  const query = new URLSearchParams({ key: partitionKey });
  const live = useLive(sourceApi(place.connection, place.source, `partition?${query}`));
  const close = useRef<HTMLButtonElement>(null);
  const first = useRef(partitionKey);
  useEffect(() => {
    // The link to a relative was clicked, and is gone.
    if (first.current !== partitionKey) close.current?.focus();
    first.current = partitionKey;
  }, [partitionKey]);
  const { response: row, problem, nextAt, refresh } = live;
  const isGone = problem?.kind === "missing";
  return (
    <Drawer.Root
      open
      size={{ base: "full", md: "lg" }}
      onOpenChange={({ open }) => !open && onClose()}
      initialFocusEl={() => close.current}
      // The row may have been drawn again; the key finds it.
      finalFocusEl={() =>
        [...document.querySelectorAll("[data-key]")]
          .find((each) => each.getAttribute("data-key") === partitionKey)
          ?.querySelector("[data-opens]") ?? null
      }
    >
      <Portal>
        <Drawer.Backdrop />
        <Drawer.Positioner>
          <Drawer.Content data-drawer={partitionKey} bg="bg.panel">
            <Drawer.Header
              display="flex"
              alignItems="flex-start"
              gap={2}
              borderBottomWidth={1}
              borderColor="border.emphasized"
              py={3}
            >
              <Box flex={1} minW={0}>
                <Text fontSize="xs" color="fg.muted" truncate>
                  {`Partition of ${place.source}`}
                </Text>
                <Drawer.Title fontSize="md" overflowWrap="anywhere" dir="auto">
                  {partitionKey}
                </Drawer.Title>
              </Box>
              <CopyButton text={partitionKey} label="Copy the key of the partition" size="xs" />
              <Drawer.CloseTrigger asChild position="static">
                <CloseButton size="xs" ref={close} aria-label="Close" data-close />
              </Drawer.CloseTrigger>
            </Drawer.Header>
            <Drawer.Body key={partitionKey} py={4}>
              {isGone ? (
                <EmptyState
                  title="This partition no longer exists"
                  text="It was deleted, or removed with its shard. A later scan of the source may create it again."
                  kind="missing"
                />
              ) : row === null ? (
                problem === null ? (
                  <Loading what="the partition" />
                ) : (
                  <ProblemPage problem={problem} connection={place.connection} nextAt={nextAt} refresh={refresh} />
                )
              ) : (
                <>
                  {problem !== null && (
                    <StaleNote problem={problem} connection={place.connection} nextAt={nextAt} refresh={refresh} />
                  )}
                  <Details row={row} place={place} connection={connection} search={search} refresh={refresh} />
                </>
              )}
            </Drawer.Body>
          </Drawer.Content>
        </Drawer.Positioner>
      </Portal>
    </Drawer.Root>
  );
}
