/** Values over time for charts: rates from counters, and lines with gaps. */

import uPlot from "uplot";

import type { LagPoint, RecordCounts, TaskCount } from "../api/schema";
import type { Line, TimePoint } from "../types";

const MINUTE = 60000;

/** The windows of charts, in milliseconds. */
export const WINDOWS = { "1h": 60 * MINUTE, "6h": 360 * MINUTE, "24h": 1440 * MINUTE };

/** Two points further apart than this have a gap between them: the source was not measured. */
const GAP = 11 * MINUTE;

/**
 * Return a lag or an age of a source over time, in seconds.
 *
 * @param series the oldest first
 */
export function secondsOverTime(series: LagPoint[], name: "oldest_ms" | "freshness_ms" | "watermark_ms"): TimePoint[] {
  return series.map((point) => {
    const milliseconds = point[name];
    return { at: Date.parse(point.at), value: milliseconds === null ? null : milliseconds / 1000 };
  });
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

/** Return the data of a chart: the instants, and the values of each line at them. There is none within a gap. */
export function aligned(lines: Line[]): uPlot.AlignedData {
  return uPlot.join(
    lines.map((line) => {
      const points = line.isStep ? line.points : withBreaks(line.points);
      return [points.map(({ at }) => at), points.map(({ value }) => value)];
    }),
  );
}

/** Return points with one more in each gap, without a value, so that no line crosses it. */
function withBreaks(points: TimePoint[]): TimePoint[] {
  const breaks = gapsOf(points).map(({ since, until }) => ({ at: (since + until) / 2, value: null }));
  return [...points, ...breaks].sort((a, b) => a.at - b.at);
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

/** Return the instant that is nearest to a time; null if there is none. */
export function nearest(instants: number[], time: number | null) {
  if (time === null || instants.length === 0) return null;
  return instants.reduce((best, at) => (Math.abs(at - time) < Math.abs(best - time) ? at : best));
}
