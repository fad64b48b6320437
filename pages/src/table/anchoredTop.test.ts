/** Where a list stays when rows come and go. */

import { expect, test } from "vitest";

import { anchoredTop } from "./anchoredTop";

const place = (top, before, after) => anchoredTop({ top, rowHeight: 10, before, after });

test("rows that come above do not move those in sight", () => {
  expect(place(25, ["a", "b", "c", "d"], ["new", "a", "b", "c", "d"])).toBe(35);
});

test("rows that go above do not move those in sight", () => {
  expect(place(25, ["a", "b", "c", "d"], ["b", "c", "d"])).toBe(15);
});

test("where the row on top is gone, the next one keeps its place", () => {
  expect(place(20, ["a", "b", "c", "d"], ["a", "b", "d"])).toBe(10);
});

test("a list of other rows stays where it is scrolled to", () => {
  expect(place(20, ["a", "b", "c"], ["x", "y", "z"])).toBe(20);
});
