/** Values over time for charts: rates from counters, scales that end at round numbers, lines with gaps. */

import type { LagPoint, RecordCounts, TaskCount } from "../api/schema";
import type { ChartArea, TimePoint } from "../types";

const MINUTE = 60000;

/** The windows of charts, in milliseconds. */
export const WINDOWS = { "1h": 60 * MINUTE, "6h": 360 * MINUTE, "24h": 1440 * MINUTE };

/** Two points further apart than this have a gap between them: the source was not measured. */
const GAP = 11 * MINUTE;

/** The ends of an axis of seconds for which its middle is a round time too. */
const ROUND_SECONDS = [
  1, 2, 4, 10, 20, 40, 60, 120, 240, 600, 1200, 2400, 3600, 7200, 14400, 21600, 43200, 86400, 172800,
];

/**
 * Return the lag of a source over time, in seconds.
 *
 * @param series the oldest first
 */
export function lagOverTime(series: LagPoint[]): TimePoint[] {
  return series.map((point) => ({
    at: Date.parse(point.at),
    value: point.oldest_ms === null ? null : point.oldest_ms / 1000,
  }));
}

/**
 * Return the freshness of a source's slowest sink over time, in seconds.
 *
 * @param series the oldest first
 */
export function freshnessOverTime(series: LagPoint[]): TimePoint[] {
  return series.map((point) => ({
    at: Date.parse(point.at),
    value: point.freshness_ms === null ? null : point.freshness_ms / 1000,
  }));
}

/**
 * Return how long ago the watermark of a source was, over time, in seconds.
 *
 * @param series the oldest first
 */
export function watermarkOverTime(series: LagPoint[]): TimePoint[] {
  return series.map((point) => ({
    at: Date.parse(point.at),
    value: point.watermark_ms === null ? null : point.watermark_ms / 1000,
  }));
}

/**
 * Return the rate per second between each point and the one before it.
 *
 * Counters restart when items are deleted; that is no rate.
 *
 * @param series the oldest first
 * @param names of the counters to add up
 */
export function rateOverTime(series: LagPoint[], names: (keyof RecordCounts)[]): TimePoint[] {
  const counted = series.map((point) => ({
    at: Date.parse(point.at),
    count: names.reduce((sum, name) => sum + (point.counted[name] ?? 0), 0),
  }));
  return counted.slice(1).map(({ at, count }, index) => {
    const before = counted[index];
    const seconds = (at - before.at) / 1000;
    const isRate = seconds > 0 && at - before.at <= GAP && count >= before.count;
    return { at, value: isRate ? (count - before.count) / seconds : null };
  });
}

/** Return the number of wanted jobs over time, from its changes. */
export function countOverTime({ changes, wanted }: TaskCount, now: number): TimePoint[] {
  const points = changes.map((change) => ({ at: Date.parse(change.at), value: change.after }));
  const first = changes[0];
  return [
    ...(first === undefined ? [] : [{ at: 0, value: first.before }]),
    ...points,
    ...(wanted === null ? [] : [{ at: now, value: wanted }]),
  ];
}

/**
 * Return the part of a line in a window. A line of steps includes the value at the start.
 *
 * @param points the oldest first
 */
export function within(
  points: TimePoint[],
  { since, until }: { since: number; until: number },
  isStep = false,
): TimePoint[] {
  const inside = points.filter(({ at }) => at >= since && at <= until);
  const before = isStep ? points.filter(({ at }) => at < since).at(-1) : undefined;
  return before === undefined ? inside : [{ at: since, value: before.value }, ...inside];
}

/**
 * Return the end of an axis: a round number, at least as large as every value.
 *
 * @param maximum the largest value
 */
export function roundTop(maximum: number, unit: "count" | "seconds" | "bytes") {
  if (!(maximum > 0)) return unit === "bytes" ? 1024 : unit === "seconds" ? 1 : 1;
  if (unit === "seconds") {
    const found = ROUND_SECONDS.find((each) => each >= maximum);
    return found ?? Math.ceil(maximum / 172800) * 172800;
  }
  const base = unit === "bytes" ? 1024 ** Math.floor(Math.log(maximum) / Math.log(1024)) : 1;
  const scaled = maximum / base;
  const power = 10 ** Math.floor(Math.log10(scaled));
  const step = [1, 2, 4, 10].find((each) => each * power >= scaled * (1 - 1e-9)) ?? 10;
  return step * power * base;
}

/**
 * Return the path of a line in SVG. It is interrupted where there is no value, and at gaps in the measurements.
 *
 * @param points in the window
 * @param [isStep] whether a value holds until the next one
 */
export function pathOf(points: TimePoint[], frame: ChartArea, isStep = false) {
  let path = "";

  let before: TimePoint | null = null;
  for (const point of points) {
    const { at, value } = point;
    if (value !== null) {
      const [x, y] = [xOf(at, frame), yOf(value, frame)].map(rounded);
      const isNew = before === null || before.value === null || (!isStep && at - before.at > GAP);
      path += isNew ? `M${x} ${y}` : isStep ? `H${x}V${y}` : `L${x} ${y}`;
    }
    before = point;
  }
  return path;
}

/**
 * Return the points without a neighbour, which a line could not show.
 *
 * @param points in the window
 */
export function alone(points: TimePoint[]) {
  const isNear = (a: TimePoint | undefined, b: TimePoint) =>
    a !== undefined && a.value !== null && Math.abs(a.at - b.at) <= GAP;
  return points.filter(
    (point, index) => point.value !== null && !isNear(points[index - 1], point) && !isNear(points[index + 1], point),
  );
}

export function xOf(at: number, { since, until, width }: ChartArea) {
  return ((at - since) / (until - since)) * width;
}

export function yOf(value: number, { top, height }: ChartArea) {
  return height - (value / top) * height;
}

/**
 * Return the gaps in the measurements of a window that have a point before and after them.
 *
 * @param points in the window, the oldest first
 */
export function gapsOf(points: TimePoint[]): { since: number; until: number }[] {
  return points.slice(1).flatMap(({ at }, index) => {
    const before = points[index].at;
    return at - before > GAP ? [{ since: before, until: at }] : [];
  });
}

/**
 * Return the instant that is nearest to a position in the chart; null if there is none.
 *
 * @param instants in order
 */
export function nearest(instants: number[], x: number, frame: ChartArea) {
  if (instants.length === 0) return null;
  return instants.reduce((best, at) => (Math.abs(xOf(at, frame) - x) < Math.abs(xOf(best, frame) - x) ? at : best));
}

/** Return the value of a line at an instant; null if it has none. */
export function valueAt(points: TimePoint[], at: number, isStep = false) {
  const found = isStep ? points.filter((point) => point.at <= at).at(-1) : points.find((point) => point.at === at);
  return found?.value ?? null;
}

function rounded(number: number) {
  return Math.round(number * 10) / 10;
}
