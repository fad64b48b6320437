import { Flex, Span } from "@chakra-ui/react";

import { Dot } from "../components/Dot";
import type { LegendEntry } from "../types";

/** The meaning of a chart's colours and marks. */
export function Legend({ entries }: { entries: LegendEntry[] }) {
  return (
    <Flex
      as="ul"
      aria-label="Legend"
      listStyleType="none"
      wrap="wrap"
      columnGap={4}
      rowGap={1}
      fontSize="xs"
      color="fg.muted"
    >
      {entries.map(({ label, palette, count, sign }) => (
        <Flex as="li" key={label} align="center" gap={1.5}>
          {sign ?? <Dot palette={palette ?? "gray"} />}
          {count !== undefined && (
            <Span color="fg" fontVariantNumeric="tabular-nums">
              {count}
            </Span>
          )}
          {label}
        </Flex>
      ))}
    </Flex>
  );
}
