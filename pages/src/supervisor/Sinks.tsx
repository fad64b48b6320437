/** The sinks of a source: kind, delivery guarantee, status, freshness, and the last error of an unavailable one. */

import { Code, Text } from "@chakra-ui/react";

import type { SinkReport, Watermark } from "../api/schema";
import { Chip } from "../components/Chip";
import { CompleteUntil } from "../components/CompleteUntil";
import { RelativeTime } from "../components/RelativeTime";
import { Section } from "../components/Section";
import { countText } from "../format/text";
import { freshnessText } from "../format/time";
import { SINK_STATES } from "../states";
import { PHONE_WIDTH, SmallTable } from "../table/SmallTable";

const FRESHNESS =
  "Within this age, half and 95 % of the records became visible in the sink. The age is the time since their arrival at " +
  "the source, over the last 15 minutes of deliveries. “–”: none were delivered, or the source has no times of arrival.";

/** The sinks from the latest report of a job. Each row keeps its height, however long its error is. */
export function Sinks({ sinks, watermark }: { sinks: SinkReport[]; watermark: Watermark | null }) {
  if (sinks.length === 0) return null;
  return (
    <Section title="Sinks" mb={6}>
      <SmallTable
        label="Sinks"
        rows={sinks}
        keyOf={(sink) => sink.name}
        narrowBelow={PHONE_WIDTH}
        columns={[
          {
            name: "sink",
            title: "Sink",
            cell: (sink) => (
              <Code size="sm" variant="surface" overflowWrap="anywhere">
                {sink.name}
              </Code>
            ),
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
            cell: (sink) => (
              <Chip state={sink.unavailable_since === null ? "available" : "unavailable"} states={SINK_STATES} />
            ),
          },
          {
            name: "since",
            title: "Unavailable since",
            cell: (sink) => <RelativeTime instant={sink.unavailable_since} />,
          },
          { name: "held", title: "Waiting batches", align: "end", cell: (sink) => countText(sink.waiting_batches) },
          {
            name: "freshness",
            title: "Freshness p50 / p95",
            align: "end",
            cell: (sink) => <Text title={FRESHNESS}>{freshnessText(sink)}</Text>,
          },
          {
            name: "complete",
            title: "Complete until",
            cell: (sink) => <CompleteUntil watermark={watermark} sink={sink.name} />,
          },
          {
            name: "error",
            title: "Last error",
            maxW: "420px",
            cell: (sink) => (
              <Text truncate color={sink.error ? "red.fg" : "fg.muted"} title={sink.error}>
                {sink.error || "–"}
              </Text>
            ),
          },
        ]}
      />
    </Section>
  );
}
