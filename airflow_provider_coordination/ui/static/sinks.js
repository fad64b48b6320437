/** The sinks of a source: kind, delivery guarantee, status, freshness, and the last error of an unavailable one. */

import { C, h } from "./host.js";
import { RelativeTime, Chip, Section } from "./widgets.js";
import { SmallTable, PHONE_WIDTH } from "./small_table.js";
import { SINK_STATES } from "./states.js";
import { countText } from "./text.js";
import { freshnessText } from "./time.js";
import { CompleteUntil } from "./watermark.js";

const FRESHNESS =
  "Within this age, half and 95 % of the records became visible in the sink. The age is the time since their arrival at " +
  "the source, over the last 15 minutes of deliveries. “–”: none were delivered, or the source has no times of arrival.";

/**
 * The sinks from the latest report of a job. Each row keeps its height, however long its error is.
 *
 * @param {{sinks: Api.SinkReport[], watermark: Api.Watermark|null}} props
 */
export function Sinks({ sinks, watermark }) {
  if (sinks.length === 0) return null;
  return h(
    Section,
    { title: "Sinks", mb: 6 },
    h(SmallTable, {
      label: "Sinks",
      rows: sinks,
      keyOf: (sink) => sink.name,
      narrowBelow: PHONE_WIDTH,
      columns: [
        {
          name: "sink",
          title: "Sink",
          cell: (sink) => h(C.Code, { size: "sm", variant: "surface", overflowWrap: "anywhere" }, sink.name),
        },
        { name: "kind", title: "Kind", cell: (sink) => sink.kind },
        {
          name: "delivery",
          title: "Delivery",
          cell: (sink) => (sink.is_exactly_once ? "exactly once" : "at least once"),
        },
        {
          name: "state",
          title: "State",
          cell: (sink) => h(Chip, { state: sink.unavailable_since === null ? "available" : "unavailable", states: SINK_STATES }),
        },
        { name: "since", title: "Unavailable since", cell: (sink) => h(RelativeTime, { instant: sink.unavailable_since }) },
        { name: "held", title: "Waiting batches", align: "end", cell: (sink) => countText(sink.waiting_batches) },
        {
          name: "freshness",
          title: "Freshness p50 / p95",
          align: "end",
          cell: (sink) => h(C.Text, { title: FRESHNESS }, freshnessText(sink)),
        },
        {
          name: "complete",
          title: "Complete until",
          cell: (sink) => h(CompleteUntil, { watermark, sink: sink.name }),
        },
        {
          name: "error",
          title: "Last error",
          maxW: "420px",
          cell: (sink) =>
            h(C.Text, { truncate: true, color: sink.error ? "red.fg" : "fg.muted", title: sink.error }, sink.error || "–"),
        },
      ],
    }),
  );
}
