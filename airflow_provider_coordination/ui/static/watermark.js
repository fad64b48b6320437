/** The watermark of a source: everything that arrived before it is delivered. */

import { C, h } from "./host.js";
import { RelativeTime } from "./widgets.js";

/**
 * How far a source, or one of its sinks, is complete, and what holds it.
 *
 * @param {{watermark: Api.Watermark|null, sink?: string}} props
 */
export function CompleteUntil({ watermark, sink = "" }) {
  if (watermark === null) return "–";
  if (watermark.is_finished) return "all";
  const until = sink in watermark.sinks ? watermark.sinks[sink] : watermark.until;
  const [hold] = watermark.held_by;
  const held = hold === undefined ? "" : `held by ${hold.name}: ${hold.reason}`;
  return h(C.Box, { as: "span", title: held }, h(RelativeTime, { instant: until, title: undefined }));
}

/**
 * The parts of a source that hold its watermark, the first one first.
 *
 * @param {{watermark: Api.Watermark|null}} props
 */
export function HeldBy({ watermark }) {
  const [hold] = watermark?.held_by ?? [];
  if (hold === undefined) return null;
  return h(C.Text, { fontSize: "xs", color: "fg.muted", overflowWrap: "anywhere" }, `Held by ${hold.name}: ${hold.reason}`);
}
