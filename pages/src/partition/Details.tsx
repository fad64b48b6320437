import { Box, Flex, Stack, Text } from "@chakra-ui/react";
import { useState } from "react";

import { ActionDialog } from "../dialogs";
import { PartitionActionButtons } from "../actions/PartitionActionButtons";
import type { ConnectionRow, PartitionDetail } from "../api/schema";
import { Chip } from "../components/Chip";
import { CopyButton } from "../components/CopyButton";
import { FactList } from "../components/FactList";
import { Instant } from "../components/Instant";
import { ManualLink } from "../components/ManualLink";
import { Section } from "../components/Section";
import { countText, plural } from "../format/text";
import { lagText } from "../format/time";
import { Time } from "../partitions/Time";
import { stateOf, STATES } from "../states";
import type { AcknowledgmentSet, Place } from "../types";
import { Block } from "./Block";
import { Copied } from "./Copied";
import { History } from "./History";
import { Landed } from "./Landed";
import { OwnerFacts } from "./OwnerFacts";
import { Sets } from "./Sets";
import { Shard } from "./Shard";

export function Details({
  row,
  place,
  connection,
  search,
  hasOrigins,
  refresh,
}: {
  row: PartitionDetail;
  place: Place;
  connection: ConnectionRow | null;
  search: string;
  hasOrigins: boolean;
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
      {row.landed.length > 0 && <Landed batches={row.landed} place={hasOrigins ? place : null} />}
      {row.acknowledgment_sets.length > 0 && (
        <Sets sets={row.acknowledgment_sets as AcknowledgmentSet[]} place={place} hasOrigins={hasOrigins} />
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
