/** The axes and the lone points of charts. */

import { expect, test } from "vitest";

import { isolated, topOf } from "./options";

for (const [most, unit, top] of [
  [null, "seconds", 1],
  [0, "count", 1],
  [3, "count", 3],
  [4100, "rate", 6000],
  [8000, "rate", 8000],
  [0.03, "rate", 0.03],
  [65, "seconds", 80],
  [3601, "seconds", 4800],
  [500000, "seconds", 518400],
  [3 * 1024 * 1024, "bytes", 3 * 1024 * 1024],
  [900, "bytes", 1024],
]) {
  test(`an axis of ${unit} with at most ${most} ends at ${top}`, () => {
    expect(topOf(unit, most)).toBeCloseTo(top, 9);
  });
}

test("a value without neighbours is drawn as a point", () => {
  expect(isolated([1, 1, null, 3, null, undefined, 2])).toEqual([3, 6]);
});
