import { Badge, Flex, Span, Stack, Text } from "@chakra-ui/react";

import type { PartitionLine } from "../api/schema";
import { Instant } from "../components/Instant";
import { useNow } from "../format/clock";
import { ownerLabel } from "../format/text";
import { duration } from "../format/time";
import { ENDS, stateOf } from "../states";
import type { Bar } from "../types";

/** The details of a holding: its owner, its duration, its start and its end. */
export function About({ line, bar }: { line: PartitionLine; bar: Bar }) {
  const now = useNow();
  const { holding } = bar;
  const end = stateOf(holding.end, ENDS);
  const seconds =
    holding.began_at === null
      ? null
      : ((holding.ended_at === null ? now : Date.parse(holding.ended_at)) - Date.parse(holding.began_at)) / 1000;
  return (
    <Stack gap={1}>
      <Flex gap={2} align="center" wrap="wrap" minW={0}>
        <Text fontWeight="semibold" title={holding.owner?.name} overflowWrap="anywhere" minW={0}>
          {ownerLabel(holding.owner)}
        </Text>
        <Badge colorPalette={end.palette} variant="subtle">
          {end.label}
        </Badge>
        {seconds !== null && <Text fontVariantNumeric="tabular-nums">{duration(seconds)}</Text>}
        <Text color="fg.muted" minW={0} truncate>
          {line.partition_key}
        </Text>
      </Flex>
      <Flex gap={1} fontSize="xs" color="fg.muted" wrap="wrap">
        {holding.began_at === null ? (
          "held since before the history begins"
        ) : (
          <>
            {holding.begin === "unknown" ? "held since" : holding.begin}
            <Instant instant={holding.began_at} withAge={false} />
          </>
        )}
        {holding.ended_at !== null && (
          <>
            until
            <Instant instant={holding.ended_at} withAge={false} />
          </>
        )}
        {holding.reason && <Span overflowWrap="anywhere">{`· ${holding.reason}`}</Span>}
        {holding.by && `· by ${holding.by}`}
      </Flex>
    </Stack>
  );
}
