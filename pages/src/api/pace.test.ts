/** When the API is asked again. */

import { expect, test } from "vitest";

import { secondsToNext } from "./pace";

const next = (problem, failures = 1, chance = 0.5) => secondsToNext({ problem, failures, chance });

test("while all is well it is every two seconds, and many tabs do not ask at once", () => {
  expect(next(null, 0)).toBe(2);
  expect(next(null, 0, 0) < 2 && next(null, 0, 1) > 2).toBe(true);
});

test("a store that is away is asked ever more rarely, and always again", () => {
  expect([1, 2, 3, 4, 5, 50].map((failures) => next("away", failures))).toEqual([2, 4, 8, 16, 30, 30]);
});

test("what a person has to put right is asked for rarely, and a session that ended not at all", () => {
  expect(next("forbidden")).toBe(30);
  expect(next("missing")).toBe(30);
  expect(next("session")).toBe(null);
});
