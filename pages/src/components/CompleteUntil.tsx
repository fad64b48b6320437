/** The watermark of a source: everything that arrived before it is delivered. */

import { Box } from "@chakra-ui/react";

import type { Watermark } from "../api/schema";
import { RelativeTime } from "./RelativeTime";

/** How far a source, or one of its sinks, is complete, and what holds it. */
export function CompleteUntil({ watermark, sink = "" }: { watermark: Watermark | null; sink?: string }) {
  if (watermark === null) return "–";
  if (watermark.is_finished) return "all";
  const until = sink in watermark.sinks ? watermark.sinks[sink] : watermark.until;
  const [hold] = watermark.held_by;
  const held = hold === undefined ? "" : `held by ${hold.name}: ${hold.reason}`;
  return (
    <Box as="span" title={held}>
      <RelativeTime instant={until} short title={undefined} />
    </Box>
  );
}
