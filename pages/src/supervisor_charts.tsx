/** The charts of a supervised source: lag, freshness, watermark, delivered records and bytes, bad records, and the number of jobs. */

import { Badge, Box, Flex, Grid, Span, Strong, Text } from "@chakra-ui/react";
import { useMemo } from "react";

import { Chart } from "./chart";
import { ViewChoice, Choice } from "./chart_controls";
import { useNow } from "./clock";
import {
  countOverTime,
  freshnessOverTime,
  lagOverTime,
  rateOverTime,
  watermarkOverTime,
  WINDOWS,
  within,
} from "./series";
import { SmallTable, PHONE_WIDTH } from "./small_table";
import { capitalized, plural, rateText } from "./text";
import { lagText } from "./time";
import { Instant, Section } from "./widgets";
import type { RecordCounts, SupervisorWithVerbs } from "./schema";
import type { Change, TimePoint, Line } from "./types";

/** The counters of records that were not delivered normally. Everybody can distinguish orange and blue, and the dashes. */
const BAD_RECORDS: [keyof RecordCounts, string, string, string | undefined][] = [
  ["processed_with_error", "with error", "orange", undefined],
  ["unparseable", "unparseable", "blue", "7 3"],
  ["thrown_away", "dropped", "gray", "2 3"],
];

function perSecond(value: number) {
  if (value === 0) return "0/s";
  return `${value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(2).replace(/\.0+$/, "")}/s`;
}

/** Return the window of the charts from the URL: its name, its start and its end. */
function useWindow(parameters: URLSearchParams) {
  const chosen = parameters.get("window") ?? "";
  const name = (Object.hasOwn(WINDOWS, chosen) ? chosen : "1h") as keyof typeof WINDOWS;
  // Rounded to 10 s, so that the charts are not drawn each second.
  const until = Math.ceil(useNow() / 10000) * 10000;
  return { name, window: { since: until - WINDOWS[name], until } };
}

export function OverTime({
  status,
  parameters,
  change,
}: {
  status: SupervisorWithVerbs;
  parameters: URLSearchParams;
  change: Change;
}) {
  const { name, window } = useWindow(parameters);
  const isList = parameters.get("as") === "list";
  const series = status.lag_series;
  const lines = useMemo(
    () => ({
      lag: lagOverTime(series),
      freshness: freshnessOverTime(series),
      watermark: watermarkOverTime(series),
      records: rateOverTime(series, ["processed"]),
      bytes: rateOverTime(series, ["processed_bytes"]),
      bad: BAD_RECORDS.map(([field, label, palette, dashes]) => ({
        name: label,
        palette,
        dashes,
        points: rateOverTime(series, [field]),
      })),
    }),
    [series],
  );
  return (
    <Section
      title="Over time"
      aside={
        <Flex gap={2}>
          <Choice
            label="Time range"
            value={name}
            options={Object.keys(WINDOWS).map((each) => [each, each.replace("h", " h")]) as [string, string][]}
            onChange={(chosen) => change({ window: chosen === "1h" ? null : chosen })}
          />
          <ViewChoice value={isList ? "list" : "picture"} onChange={(value) => change({ as: value })} />
        </Flex>
      }
    >
      {isList ? (
        <ListView lines={lines} window={window} />
      ) : (
        <Grid templateColumns="repeat(auto-fill, minmax(min(100%, 420px), 1fr))" gap={3}>
          <Chart
            title="Longest lag of a partition"
            lines={[{ name: "lag", palette: "blue", points: lines.lag }]}
            window={window}
            unit="seconds"
            format={lagText}
          />
          <Chart
            title="Freshness of the slowest sink (p95)"
            lines={[{ name: "freshness", palette: "purple", points: lines.freshness }]}
            window={window}
            unit="seconds"
            format={lagText}
          />
          <Chart
            title="Age of the watermark"
            lines={[{ name: "watermark", palette: "orange", points: lines.watermark }]}
            window={window}
            unit="seconds"
            format={lagText}
          />
          <Chart
            title="Records delivered"
            lines={[{ name: "records", palette: "green", points: lines.records }]}
            window={window}
            unit="count"
            format={perSecond}
          />
          <Chart
            title="Bytes delivered"
            lines={[{ name: "bytes", palette: "teal", points: lines.bytes }]}
            window={window}
            unit="bytes"
            format={rateText}
          />
          <Chart title="Bad and dropped records" lines={lines.bad} window={window} unit="count" format={perSecond} />
        </Grid>
      )}
    </Section>
  );
}

function ListView({
  lines,
  window,
}: {
  lines: {
    lag: TimePoint[];
    freshness: TimePoint[];
    watermark: TimePoint[];
    records: TimePoint[];
    bytes: TimePoint[];
    bad: Line[];
  };
  window: { since: number; until: number };
}) {
  const byInstant = (points: TimePoint[]) => new Map(points.map(({ at, value }) => [at, value]));
  const columns = (
    [
      ["lag", "Lag", lines.lag, lagText],
      ["freshness", "Freshness", lines.freshness, lagText],
      ["watermark", "Watermark", lines.watermark, lagText],
      ["records", "Records", lines.records, perSecond],
      ["bytes", "Bytes", lines.bytes, rateText],
      ...lines.bad.map((line) => [line.name, capitalized(line.name), line.points, perSecond]),
    ] as [string, string, TimePoint[], (value: number) => string][]
  ).map(([name, title, points, format]) => ({ name, title, format, values: byInstant(points) }));
  return (
    <SmallTable
      label="Over time"
      rows={within(lines.lag, window).toReversed()}
      keyOf={(point) => String(point.at)}
      columns={[
        {
          name: "at",
          title: "At",
          cell: (point) => <Instant instant={new Date(point.at).toISOString()} withAge={false} />,
        },
        ...columns.map(({ name, title, format, values }) => ({
          name,
          title,
          align: "end",
          cell: (point: TimePoint) => {
            const value = values.get(point.at) ?? null;
            return value === null ? "–" : format(value);
          },
        })),
      ]}
    />
  );
}

/** The number of jobs that the supervisor wants: over time, and each change with its reason. */
export function TaskCount({ status, parameters }: { status: SupervisorWithVerbs; parameters: URLSearchParams }) {
  const { window } = useWindow(parameters);
  const { task_count: count } = status;
  const points = useMemo(() => countOverTime(count, window.until), [count, window.until]);
  const bounds = count.min === null || count.max === null ? null : `scales from ${count.min} to ${count.max} jobs`;
  return (
    <Section title="Number of jobs">
      <>
        <Text fontSize="sm" mb={2} data-task-count={count.wanted}>
          <Strong>{count.wanted === null ? "Not decided yet" : `${plural(count.wanted, "job")} wanted`}</Strong>
          {count.reason && `: ${count.reason}`}
          {bounds && <Span color="fg.muted">{` (${bounds})`}</Span>}
        </Text>
        {points.length > 1 && (
          <Chart
            title="Jobs wanted"
            lines={[{ name: "jobs", palette: "cyan", points, isStep: true }]}
            window={window}
            unit="count"
            format={(value) => (Number.isInteger(value) ? plural(value, "job") : "")}
          />
        )}
        {count.changes.length > 0 && (
          <Box mt={3}>
            <SmallTable
              label="Changes of the number of jobs"
              rows={count.changes.toReversed()}
              keyOf={(each) => `${each.at} ${each.before} ${each.after}`}
              narrowBelow={PHONE_WIDTH}
              columns={[
                { name: "at", title: "At", width: "210px", cell: (each) => <Instant instant={each.at} /> },
                {
                  name: "change",
                  title: "Jobs",
                  width: "90px",
                  cell: (each) =>
                    each.before === each.after ? (
                      <Badge colorPalette="orange" variant="subtle">
                        {`stays ${each.after}`}
                      </Badge>
                    ) : (
                      `${each.before} → ${each.after}`
                    ),
                },
                { name: "reason", title: "Why", maxW: "none", cell: (each) => each.reason },
              ]}
            />
          </Box>
        )}
      </>
    </Section>
  );
}
