/** What happened to a supervised source over time: its lag, what its jobs read, what was wrong with it, how many there were. */

import { Chart } from "./chart.js";
import { C, Fragment, h, useMemo } from "./host.js";
import { AsChoice, Choice } from "./picture.js";
import { Instant, Part } from "./pieces.js";
import { countOverTime, lagOverTime, rateOverTime, WINDOWS, within } from "./series.js";
import { SmallTable } from "./small_table.js";
import { capitalized, rateText } from "./texts.js";
import { useNow } from "./ticking.js";
import { lagText } from "./time.js";

/** @type {[string, string, string][]} what is counted of records that are not delivered as they should be */
const BAD = [
  ["processed_with_error", "with error", "red"],
  ["unparseable", "unparseable", "orange"],
  ["thrown_away", "thrown away", "purple"],
];

/** @param {number} value */
function perSecond(value) {
  if (value === 0) return "0/s";
  return `${value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(2).replace(/\.0+$/, "")}/s`;
}

/**
 * @param {{status: Api.SupervisorStatus, parameters: URLSearchParams, change: Change}} props
 */
export function OverTime({ status, parameters, change }) {
  const name = parameters.get("window") ?? "1h";
  const length = Object.hasOwn(WINDOWS, name) ? WINDOWS[/** @type {keyof typeof WINDOWS} */ (name)] : WINDOWS["1h"];
  const isList = parameters.get("as") === "list";
  // To ten seconds: the pictures need not be drawn each second.
  const now = Math.ceil(useNow() / 10000) * 10000;
  const window = { since: now - length, until: now };
  const series = status.lag_series;
  const lines = useMemo(
    () => ({
      lag: lagOverTime(series),
      records: rateOverTime(series, ["processed"]),
      bytes: rateOverTime(series, ["processed_bytes"]),
      bad: BAD.map(([field, label, palette]) => ({
        name: label,
        palette,
        points: rateOverTime(series, [field]),
      })),
    }),
    [series],
  );
  return h(
    Part,
    {
      title: "Over time",
      aside: h(
        C.Flex,
        { gap: 2 },
        h(Choice, {
          label: "How far back",
          value: Object.hasOwn(WINDOWS, name) ? name : "1h",
          options: /** @type {[string, string][]} */ (Object.keys(WINDOWS).map((each) => [each, each.replace("h", " h")])),
          onChange: (chosen) => change({ window: chosen === "1h" ? null : chosen }),
        }),
        h(AsChoice, { value: isList ? "list" : "picture", onChange: (value) => change({ as: value }) }),
      ),
    },
    isList
      ? h(AsList, { lines, window })
      : h(
          C.Grid,
          { templateColumns: "repeat(auto-fill, minmax(min(100%, 420px), 1fr))", gap: 3 },
          h(Chart, {
            title: "Lag of the shard that is furthest behind",
            lines: [{ name: "lag", palette: "blue", points: lines.lag }],
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
          h(Chart, { title: "Bad records", lines: lines.bad, window, unit: "count", format: perSecond }),
        ),
  );
}

/**
 * @param {{
 *   lines: {lag: TimePoint[], records: TimePoint[], bytes: TimePoint[], bad: Line[]},
 *   window: {since: number, until: number},
 * }} props
 */
function AsList({ lines, window }) {
  /** @param {TimePoint[]} points */
  const byInstant = (points) => new Map(points.map(({ at, value }) => [at, value]));
  const columns = /** @type {[string, string, TimePoint[], (value: number) => string][]} */ ([
    ["lag", "Lag", lines.lag, lagText],
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
 * How many jobs there are to be, and why: over time, and each change with its reason.
 *
 * @param {{status: Api.SupervisorStatus, parameters: URLSearchParams}} props
 */
export function TaskCount({ status, parameters }) {
  const now = Math.ceil(useNow() / 10000) * 10000;
  const name = parameters.get("window") ?? "1h";
  const length = Object.hasOwn(WINDOWS, name) ? WINDOWS[/** @type {keyof typeof WINDOWS} */ (name)] : WINDOWS["1h"];
  const { task_count: count } = status;
  const points = useMemo(() => countOverTime(count, now), [count, now]);
  const bounds = count.min === null || count.max === null ? null : `scales from ${count.min} to ${count.max}`;
  return h(
    Part,
    { title: "Number of jobs" },
    h(
      Fragment,
      null,
      h(
        C.Text,
        { fontSize: "sm", mb: 2, "data-task-count": count.wanted },
        h(C.Strong, null, `${count.wanted ?? "No"} wanted`),
        count.reason && `: ${count.reason}`,
        bounds && h(C.Span, { color: "fg.muted" }, ` (${bounds})`),
      ),
      points.length > 1 &&
        h(Chart, {
          title: "Jobs wanted",
          lines: [{ name: "jobs", palette: "cyan", points, isStep: true }],
          window: { since: now - length, until: now },
          unit: "count",
          format: (value) => String(Math.round(value * 10) / 10),
        }),
      count.changes.length > 0 &&
        h(
          C.Box,
          { mt: 3 },
          h(SmallTable, {
            label: "Changes of the number of jobs",
            rows: count.changes.toReversed(),
            keyOf: (each) => `${each.at} ${each.before} ${each.after}`,
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
