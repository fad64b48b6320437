import { Text } from "@chakra-ui/react";

import type { Watermark } from "../api/schema";

/** The parts of a source that hold its watermark, the first one first. */
export function HeldBy({ watermark }: { watermark: Watermark | null }) {
  const [hold] = watermark?.held_by ?? [];
  if (hold === undefined) return null;
  return (
    <Text fontSize="xs" color="fg.muted" overflowWrap="anywhere">
      {`Held back by ${hold.name}: ${hold.reason}`}
    </Text>
  );
}
