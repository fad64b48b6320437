/** Where the batches of a source go: each sink with its kind, what it promises, and since when and why it takes nothing. */

import { C, h } from "./host.js";
import { Ago, Chip, Part } from "./widgets.js";
import { SmallTable, TELEPHONE } from "./small_table.js";
import { SINK_STATES } from "./states.js";
import { countText } from "./text.js";

/**
 * The sinks, as the job that reported last knows them. Each row keeps its height, whatever an error says.
 *
 * @param {{sinks: Api.SinkFacts[]}} props
 */
export function Sinks({ sinks }) {
  if (sinks.length === 0) return null;
  return h(
    Part,
    { title: "Sinks", mb: 6 },
    h(SmallTable, {
      label: "Sinks",
      rows: sinks,
      keyOf: (sink) => sink.name,
      narrowBelow: TELEPHONE,
      columns: [
        {
          name: "sink",
          title: "Sink",
          cell: (sink) => h(C.Code, { size: "sm", variant: "surface", overflowWrap: "anywhere" }, sink.name),
        },
        { name: "kind", title: "Kind", cell: (sink) => sink.kind },
        {
          name: "delivery",
          title: "Each batch",
          cell: (sink) => (sink.is_exactly_once ? "exactly once" : "at least once"),
        },
        {
          name: "state",
          title: "State",
          cell: (sink) => h(Chip, { state: sink.away_since === null ? "taking" : "away", states: SINK_STATES }),
        },
        { name: "since", title: "Since", cell: (sink) => h(Ago, { instant: sink.away_since }) },
        { name: "held", title: "Waiting", align: "end", cell: (sink) => countText(sink.held) },
        {
          name: "error",
          title: "Error",
          maxW: "420px",
          cell: (sink) =>
            h(C.Text, { truncate: true, color: sink.error ? "red.fg" : "fg.muted", title: sink.error }, sink.error || "–"),
        },
      ],
    }),
  );
}
