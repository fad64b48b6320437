import { Badge, Box, Flex, Text } from "@chakra-ui/react";

import type { SinkTrace, TraceFacts } from "../api/schema";
import { CopyButton } from "../components/CopyButton";
import { FactList } from "../components/FactList";
import { Instant } from "../components/Instant";
import { Owner } from "../components/Owner";
import { PageLink } from "../components/PageLink";
import { Warning } from "../components/Warning";
import { countText, plural } from "../format/text";
import type { Content } from "../types";
import { withParameters } from "../urls";

const PALETTES: Record<string, string> = { delivered: "green", missing: "orange" };

/** Where the rows of a batch come from, and what each sink has of it. */
export function Origin({ facts: { batch, owner, is_pending, sinks }, search }: { facts: TraceFacts; search: string }) {
  const leftOut = Object.entries(batch.left_out).map(([stage, count]) => `, ${countText(count)} left out (${stage})`);
  return (
    <Box borderWidth={1} borderColor="border.emphasized" borderRadius="md" p={3} bg="bg" data-origin={batch.batch_id}>
      {is_pending && (
        <Warning level="warning" mb={3}>
          Not every sink has acknowledged the batch yet.
        </Warning>
      )}
      <FactList
        facts={[
          [
            "Batch",
            <Flex align="center" gap={1} minW={0}>
              <Text as="span" fontFamily="mono" fontSize="xs" overflowWrap="anywhere" minW={0}>
                {batch.batch_id}
              </Text>
              <CopyButton text={batch.batch_id} label="Copy the id of the batch" />
            </Flex>,
          ],
          [
            "Partition",
            <PageLink to={{ search: withParameters(search, { partition: batch.partition_key }) }}>
              {batch.partition_key}
            </PageLink>,
          ],
          ["Range", `after ${batch.start || "the start"} up to ${batch.end}`],
          ["Records", `${countText(batch.records)}${leftOut.join("")}`],
          batch.origin.first_arrival && ["First arrival", <Instant instant={batch.origin.first_arrival} />],
          batch.origin.last_arrival && ["Last arrival", <Instant instant={batch.origin.last_arrival} />],
          batch.landed_at && ["Recorded", <Instant instant={batch.landed_at} />],
          ["Job and its log", <Owner owner={owner} withHost />],
          ...sinks.map((sink): [string, Content] => [`Sink ${sink.sink}`, <OfSink sink={sink} />]),
        ]}
      />
    </Box>
  );
}

function OfSink({ sink: { state, rows, location } }: { sink: SinkTrace }) {
  return (
    <Flex gap={2} align="center" wrap="wrap" minW={0}>
      <Badge variant="subtle" colorPalette={PALETTES[state] ?? "red"} whiteSpace="normal">
        {state}
      </Badge>
      {rows !== null && plural(rows, "row")}
      <Text as="span" color="fg.muted" overflowWrap="anywhere" minW={0}>
        {`in ${location}`}
      </Text>
    </Flex>
  );
}
