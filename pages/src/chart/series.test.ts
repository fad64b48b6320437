/** Values over time: rates from counts, round axes, lines with their gaps. */

import { expect, test } from "vitest";

import {
  alone,
  countOverTime,
  freshnessOverTime,
  gapsOf,
  lagOverTime,
  nearest,
  pathOf,
  rateOverTime,
  watermarkOverTime,
  roundTop,
  valueAt,
  within,
} from "./series";

const MINUTE = 60000;
const at = (minute) => new Date(minute * MINUTE).toISOString();
const point = (minute, processed, oldest = 0) => ({
  at: at(minute),
  oldest_ms: oldest,
  sum_ms: 0,
  counted: { processed, unparseable: 1 },
});

test("lag is in seconds, and unknown where nobody knows it", () => {
  expect(lagOverTime([point(1, 0, 1500), point(2, 0, null)])).toEqual([
    { at: MINUTE, value: 1.5 },
    { at: 2 * MINUTE, value: null },
  ]);
});

test("freshness is in seconds, and unknown where nothing was delivered", () => {
  expect(
    freshnessOverTime([
      { ...point(1, 0), freshness_ms: 2500 },
      { ...point(2, 0), freshness_ms: null },
    ]),
  ).toEqual([
    { at: MINUTE, value: 2.5 },
    { at: 2 * MINUTE, value: null },
  ]);
});

test("the watermark is in seconds, and unknown before every partition was read", () => {
  expect(
    watermarkOverTime([
      { ...point(1, 0), watermark_ms: 4000 },
      { ...point(2, 0), watermark_ms: null },
    ]),
  ).toEqual([
    { at: MINUTE, value: 4 },
    { at: 2 * MINUTE, value: null },
  ]);
});

test("a rate is what was counted since the point before, a second", () => {
  const rates = rateOverTime([point(1, 100), point(2, 700), point(4, 700)], ["processed", "unparseable"]);
  expect(rates).toEqual([
    { at: 2 * MINUTE, value: 10 },
    { at: 4 * MINUTE, value: 0 },
  ]);
});

test("there is no rate where counters restarted, or measurements have a gap", () => {
  const rates = rateOverTime([point(1, 100), point(2, 50), point(30, 5000)], ["processed"]);
  expect(rates.map(({ value }) => value)).toEqual([null, null]);
});

test("how many jobs there were follows from the changes, from before the first one until now", () => {
  const change = (minute, before, after) => ({ at: at(minute), before, after, reason: "" });
  const points = countOverTime({ wanted: 2, changes: [change(5, 1, 3), change(9, 3, 2)] }, 10 * MINUTE);
  expect(points).toEqual([
    { at: 0, value: 1 },
    { at: 5 * MINUTE, value: 3 },
    { at: 9 * MINUTE, value: 2 },
    { at: 10 * MINUTE, value: 2 },
  ]);
});

test("steps enter a window with the value that they had before it, and lines do not", () => {
  const points = [1, 5, 9].map((value) => ({ at: value, value }));
  expect(within(points, { since: 4, until: 8 }).map((each) => each.at)).toEqual([5]);
  expect(within(points, { since: 4, until: 8 }, true)).toEqual([
    { at: 4, value: 1 },
    { at: 5, value: 5 },
  ]);
});

for (const [most, unit, top] of [
  [0, "count", 1],
  [3, "count", 4],
  [4, "count", 4],
  [4100, "count", 10000],
  [0.03, "count", 0.04],
  [65, "seconds", 120],
  [3601, "seconds", 7200],
  [500000, "seconds", 518400],
  [3 * 1024 * 1024, "bytes", 4 * 1024 * 1024],
  [900, "bytes", 1000],
]) {
  test(`an axis of ${unit} with at most ${most} ends at ${top}`, () => {
    expect(Math.abs(roundTop(most, unit) - top) < 1e-9, `${roundTop(most, unit)}`).toBe(true);
  });
}

const FRAME = { since: 0, until: 100 * MINUTE, width: 100, height: 10, top: 10 };
const line = (...values) => values.map(([minute, value]) => ({ at: minute * MINUTE, value }));

test("a line breaks where a value is unknown, and where nobody looked for a while", () => {
  expect(pathOf(line([0, 0], [10, 10], [20, null], [25, 5], [60, 5]), FRAME)).toBe("M0 10L10 0M25 5M60 5");
});

test("a step holds until the next one, however long that takes", () => {
  expect(pathOf(line([0, 2], [60, 4]), FRAME, true)).toBe("M0 8H60V6");
});

test("a value without neighbours is drawn as a point", () => {
  const points = line([0, 1], [5, 1], [40, 3], [60, null], [61, 2]);
  expect(alone(points).map((each) => each.at / MINUTE)).toEqual([40, 61]);
});

test("what lies next to the pointer is pointed at, and says its value", () => {
  const points = line([0, 1], [50, 2]);
  const instants = points.map((each) => each.at);
  expect(nearest(instants, 30, FRAME)).toBe(50 * MINUTE);
  expect(nearest([], 30, FRAME)).toBe(null);
  expect(valueAt(points, 30 * MINUTE)).toBe(null);
  expect(valueAt(points, 30 * MINUTE, true)).toBe(1);
  expect(valueAt(points, 50 * MINUTE)).toBe(2);
});

test("a gap reaches from the last point before it to the first one after it", () => {
  const points = [0, 5, 10, 60, 65].map((minute) => ({ at: minute * MINUTE, value: 1 }));
  expect(gapsOf(points)).toEqual([{ since: 10 * MINUTE, until: 60 * MINUTE }]);
  expect(gapsOf(points.slice(0, 3))).toEqual([]);
});
