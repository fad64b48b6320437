import { Flex, Span } from "@chakra-ui/react";

import type { SourceCard } from "../api/schema";
import { Dot } from "../components/Dot";
import { roughText } from "../format/text";
import { segmentsOf } from "../states";

export function Legend({ card }: { card: SourceCard }) {
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
