/** The charts of a supervised source: lag, freshness, watermark, delivered records and bytes, bad records, and the number of jobs. */

import { Chart } from "./chart.js";
import { C, Fragment, h, useMemo } from "./host.js";
import { ViewChoice, Choice } from "./chart_controls.js";
import { Instant, Section } from "./widgets.js";
import { countOverTime, freshnessOverTime, lagOverTime, rateOverTime, watermarkOverTime, WINDOWS, within } from "./series.js";
import { SmallTable, PHONE_WIDTH } from "./small_table.js";
import { capitalized, plural, rateText } from "./text.js";
import { useNow } from "./clock.js";
import { lagText } from "./time.js";

/**
 * The counters of records that were not delivered normally. Everybody can distinguish orange and blue, and the dashes.
 *
 * @type {[keyof Api.RecordCounts, string, string, string|undefined][]}
 */
const BAD_RECORDS = [
  ["processed_with_error", "with error", "orange", undefined],
  ["unparseable", "unparseable", "blue", "7 3"],
  ["thrown_away", "dropped", "gray", "2 3"],
];

/** @param {number} value */
function perSecond(value) {
  if (value === 0) return "0/s";
  return `${value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(2).replace(/\.0+$/, "")}/s`;
}

/**
 * Return the window of the charts from the URL: its name, its start and its end.
 *
 * @param {URLSearchParams} parameters
 */
function useWindow(parameters) {
  const chosen = parameters.get("window") ?? "";
  const name = /** @type {keyof typeof WINDOWS} */ (Object.hasOwn(WINDOWS, chosen) ? chosen : "1h");
  // Rounded to 10 s, so that the charts are not drawn each second.
  const until = Math.ceil(useNow() / 10000) * 10000;
  return { name, window: { since: until - WINDOWS[name], until } };
}

/**
 * @param {{status: Api.SupervisorWithVerbs, parameters: URLSearchParams, change: Change}} props
 */
export function OverTime({ status, parameters, change }) {
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
  return h(
    Section,
    {
      title: "Over time",
      aside: h(
        C.Flex,
        { gap: 2 },
        h(Choice, {
          label: "Time range",
          value: name,
          options: /** @type {[string, string][]} */ (Object.keys(WINDOWS).map((each) => [each, each.replace("h", " h")])),
          onChange: (chosen) => change({ window: chosen === "1h" ? null : chosen }),
        }),
        h(ViewChoice, { value: isList ? "list" : "picture", onChange: (value) => change({ as: value }) }),
      ),
    },
    isList
      ? h(ListView, { lines, window })
      : h(
          C.Grid,
          { templateColumns: "repeat(auto-fill, minmax(min(100%, 420px), 1fr))", gap: 3 },
          h(Chart, {
            title: "Longest lag of a partition",
            lines: [{ name: "lag", palette: "blue", points: lines.lag }],
            window,
            unit: "seconds",
            format: lagText,
          }),
          h(Chart, {
            title: "Freshness of the slowest sink (p95)",
            lines: [{ name: "freshness", palette: "purple", points: lines.freshness }],
            window,
            unit: "seconds",
            format: lagText,
          }),
          h(Chart, {
            title: "Age of the watermark",
            lines: [{ name: "watermark", palette: "orange", points: lines.watermark }],
            window,
            unit: "seconds",
            format: lagText,
          }),
          h(Chart, {
            title: "Records delivered",
            lines: [{ name: "records", palette: "green", points: lines.records }],
            window,
            unit: "count",
            format: perSecond,
          }),
          h(Chart, {
            title: "Bytes delivered",
            lines: [{ name: "bytes", palette: "teal", points: lines.bytes }],
            window,
            unit: "bytes",
            format: rateText,
          }),
          h(Chart, { title: "Bad and dropped records", lines: lines.bad, window, unit: "count", format: perSecond }),
        ),
  );
}

/**
 * @param {{
 *   lines: {lag: TimePoint[], freshness: TimePoint[], watermark: TimePoint[], records: TimePoint[], bytes: TimePoint[], bad: Line[]},
 *   window: {since: number, until: number},
 * }} props
 */
function ListView({ lines, window }) {
  /** @param {TimePoint[]} points */
  const byInstant = (points) => new Map(points.map(({ at, value }) => [at, value]));
  const columns = /** @type {[string, string, TimePoint[], (value: number) => string][]} */ ([
    ["lag", "Lag", lines.lag, lagText],
    ["freshness", "Freshness", lines.freshness, lagText],
    ["watermark", "Watermark", lines.watermark, lagText],
    ["records", "Records", lines.records, perSecond],
    ["bytes", "Bytes", lines.bytes, rateText],
    ...lines.bad.map((line) => [line.name, capitalized(line.name), line.points, perSecond]),
  ]).map(([name, title, points, format]) => ({ name, title, format, values: byInstant(points) }));
  return h(SmallTable, {
    label: "Over time",
    rows: within(lines.lag, window).toReversed(),
    keyOf: (point) => String(point.at),
    columns: [
      {
        name: "at",
        title: "At",
        cell: (point) => h(Instant, { instant: new Date(point.at).toISOString(), withAge: false }),
      },
      ...columns.map(({ name, title, format, values }) => ({
        name,
        title,
        align: "end",
        cell: (/** @type {TimePoint} */ point) => {
          const value = values.get(point.at) ?? null;
          return value === null ? "–" : format(value);
        },
      })),
    ],
  });
}

/**
 * The number of jobs that the supervisor wants: over time, and each change with its reason.
 *
 * @param {{status: Api.SupervisorWithVerbs, parameters: URLSearchParams}} props
 */
export function TaskCount({ status, parameters }) {
  const { window } = useWindow(parameters);
  const { task_count: count } = status;
  const points = useMemo(() => countOverTime(count, window.until), [count, window.until]);
  const bounds = count.min === null || count.max === null ? null : `scales from ${count.min} to ${count.max} jobs`;
  return h(
    Section,
    { title: "Number of jobs" },
    h(
      Fragment,
      null,
      h(
        C.Text,
        { fontSize: "sm", mb: 2, "data-task-count": count.wanted },
        h(C.Strong, null, count.wanted === null ? "Not decided yet" : `${plural(count.wanted, "job")} wanted`),
        count.reason && `: ${count.reason}`,
        bounds && h(C.Span, { color: "fg.muted" }, ` (${bounds})`),
      ),
      points.length > 1 &&
        h(Chart, {
          title: "Jobs wanted",
          lines: [{ name: "jobs", palette: "cyan", points, isStep: true }],
          window,
          unit: "count",
          format: (value) => (Number.isInteger(value) ? plural(value, "job") : ""),
        }),
      count.changes.length > 0 &&
        h(
          C.Box,
          { mt: 3 },
          h(SmallTable, {
            label: "Changes of the number of jobs",
            rows: count.changes.toReversed(),
            keyOf: (each) => `${each.at} ${each.before} ${each.after}`,
            narrowBelow: PHONE_WIDTH,
            columns: [
              { name: "at", title: "At", width: "210px", cell: (each) => h(Instant, { instant: each.at }) },
              {
                name: "change",
                title: "Jobs",
                width: "90px",
                cell: (each) =>
                  each.before === each.after
                    ? h(C.Badge, { colorPalette: "orange", variant: "subtle" }, `stays ${each.after}`)
                    : `${each.before} → ${each.after}`,
              },
              { name: "reason", title: "Why", maxW: "none", cell: (each) => each.reason },
            ],
          }),
        ),
    ),
  );
}
