import { Box, Span, Text } from "@chakra-ui/react";

import { countText, plural } from "../format/text";
import type { Row } from "../types";

/** The progress of a partition: finished items, or batches that are not delivered. */
export function Progress({ row }: { row: Row }) {
  if (!row.is_readable)
    return (
      <Text as="span" color="red.fg">
        unreadable
      </Text>
    );
  const landed = row.landed_batches > 0 ? `${plural(row.landed_batches, "batch", "batches")} to deliver` : null;
  if (row.items !== null && row.items > 0) {
    const share = Math.min(1, (row.items_done ?? 0) / row.items);
    const text = `${countText(row.items_done ?? 0)} of ${plural(row.items, "item")}`;
    return (
      <Box w="full" minW={0} title={landed ?? undefined}>
        <Text fontSize="xs" truncate>
          {text}
          {landed && <Span color="fg.muted">{`, ${landed}`}</Span>}
        </Text>
        <Box h="4px" bg="bg.emphasized" borderRadius="full" mt={1} overflow="hidden" aria-hidden>
          <Box h="full" bg="green.solid" style={{ width: `${share * 100}%` }} />
        </Box>
      </Box>
    );
  }
  const title = `${countText(row.landed_records)} records${row.position ? `, position ${row.position}` : ""}`;
  return (
    <Text as="span" fontSize="xs" truncate title={title} color={landed ? undefined : "fg.muted"}>
      {landed ?? (row.status === "COMPLETED" ? "all delivered" : row.position ? "everything so far is delivered" : "–")}
    </Text>
  );
}
