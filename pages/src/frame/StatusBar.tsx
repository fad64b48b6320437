import { Box, Flex } from "@chakra-ui/react";

import type { SourceCard } from "../api/schema";
import { plural } from "../format/text";
import { fillOf, segmentsOf } from "../states";

/** The status bar of a source: the number of partitions in each state. */
export function StatusBar({ card, height = "10px" }: { card: SourceCard; height?: string }) {
  const segments = segmentsOf(card);
  const text =
    segments.length === 0 ? "No partitions" : segments.map((each) => `${each.count} ${each.label}`).join(", ");
  return (
    <Flex role="img" aria-label={text} h={height} gap="2px" borderRadius="full" overflow="hidden" bg="bg.emphasized">
      {segments.map((each) => (
        <Box
          key={each.state}
          title={`${plural(each.count, "partition")}: ${each.label}`}
          minW="4px"
          style={{
            flexGrow: each.count,
            flexBasis: 0,
            background: fillOf(each.palette),
          }}
        />
      ))}
    </Flex>
  );
}
