/** Values over time: rates from counts, lines with their gaps. */

import { expect, test } from "vitest";

import { aligned, countOverTime, gapsOf, nearest, rateOverTime, secondsOverTime, within } from "./series";

const MINUTE = 60000;
const at = (minute) => new Date(minute * MINUTE).toISOString();
const point = (minute, processed, oldest = 0) => ({
  at: at(minute),
  oldest_ms: oldest,
  sum_ms: 0,
  counted: { processed, unparseable: 1 },
});

for (const name of ["oldest_ms", "freshness_ms", "watermark_ms"])
  test(`${name} is in seconds, and unknown where nobody knows it`, () => {
    const points = [
      { ...point(1, 0), [name]: 1500 },
      { ...point(2, 0), [name]: null },
    ];
    expect(secondsOverTime(points, name)).toEqual([
      { at: MINUTE, value: 1.5 },
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

const line = (...values) => ({
  name: "line",
  palette: "blue",
  points: values.map(([minute, value]) => ({ at: minute * MINUTE, value })),
});

test("a line has no value within a gap, and a step holds until the next one", () => {
  const points = [
    [0, 2],
    [60, 4],
  ];
  expect(aligned([line(...points)])).toEqual([
    [0, 30 * MINUTE, 60 * MINUTE],
    [2, null, 4],
  ]);
  expect(aligned([{ ...line(...points), isStep: true }])).toEqual([
    [0, 60 * MINUTE],
    [2, 4],
  ]);
});

test("lines that were measured at different times share their instants", () => {
  expect(aligned([line([0, 1], [5, null]), line([2, 3])])).toEqual([
    [0, 2 * MINUTE, 5 * MINUTE],
    [1, undefined, null],
    [undefined, 3, undefined],
  ]);
});

test("the nearest instant is chosen, if there is one", () => {
  expect(nearest([0, 50, 60], 30)).toBe(50);
  expect(nearest([0, 50], -9)).toBe(0);
  expect(nearest([], 30)).toBe(null);
  expect(nearest([0], null)).toBe(null);
});

test("a gap reaches from the last point before it to the first one after it", () => {
  const points = [0, 5, 10, 60, 65].map((minute) => ({ at: minute * MINUTE, value: 1 }));
  expect(gapsOf(points)).toEqual([{ since: 10 * MINUTE, until: 60 * MINUTE }]);
  expect(gapsOf(points.slice(0, 3))).toEqual([]);
});
