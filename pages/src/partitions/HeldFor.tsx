import { Text } from "@chakra-ui/react";

import { useNow } from "../format/clock";
import { duration, secondsHeld } from "../format/time";
import type { Row } from "../types";

/** How long the owner has held a partition, or did until its lease expired. */
export function HeldFor({ row }: { row: Row }) {
  const seconds = secondsHeld(row, useNow());
  return seconds === null ? (
    <Text as="span" color="fg.muted">
      –
    </Text>
  ) : (
    duration(seconds, { short: true })
  );
}
