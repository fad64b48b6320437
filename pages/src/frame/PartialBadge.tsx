import { Badge } from "@chakra-ui/react";

import type { SourceCard } from "../api/schema";
import type { Styles } from "../types";

/** A sign that the statistics of a source are incomplete. */
export function PartialBadge({ card, ...rest }: { card: SourceCard } & Styles) {
  if (card.is_complete) return null;
  const title =
    "The source has more partitions than were examined. Parked partitions are all counted. Failing partitions, expired " +
    "leases, lag and throughput may be higher, and earlier completed partitions are not counted.";
  return (
    <Badge colorPalette="gray" variant="subtle" flexShrink={0} title={title} {...rest}>
      partial
    </Badge>
  );
}
