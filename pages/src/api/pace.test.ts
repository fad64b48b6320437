/** When the API is asked again. */

import { expect, test } from "vitest";

import { millisecondsToNext } from "./pace";

const next = (problem: string | null, failures = 1, at = 500) =>
  millisecondsToNext({ problem, failures }, at, undefined, 0);

test("while all is well, requests are sent on the beat of the tab", () => {
  expect([0, 300, 1400, 1900].map((at) => at + (next(null, 0, at) ?? 0))).toEqual([2000, 2000, 2000, 4000]);
  expect(millisecondsToNext({ problem: null, failures: 0 }, 700, 10, 500)).toBe(9800);
});

test("a store that is away is asked ever more rarely, and always again", () => {
  const seconds = [1, 2, 3, 4, 5, 50].map((failures) => Math.round((next("away", failures) ?? 0) / 1000));
  expect(seconds).toEqual([2, 4, 8, 16, 30, 30]);
  expect(next("away", 1, 0)).toBeLessThan(next("away", 1, 999) ?? 0);
});

test("what a person has to put right is asked for rarely, and a session that ended not at all", () => {
  expect(next("forbidden")).toBe(30000);
  expect(next("missing")).toBe(30000);
  expect(next("session")).toBe(null);
});
