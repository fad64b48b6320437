/** Which rows of a long list are drawn, and where it stays when rows come and go. */

import { expect, test } from "vitest";

import { anchoredTop, topToShow, visibleRows } from "./virtualRows";

test("of ten thousand rows only those in sight are drawn, and some around them", () => {
  expect(visibleRows({ top: 4600, height: 460, rowHeight: 46, count: 10000, around: 5 })).toEqual({
    first: 95,
    end: 115,
  });
});

test("at both ends there are no more rows than there are", () => {
  expect(visibleRows({ top: 0, height: 460, rowHeight: 46, count: 3 })).toEqual({ first: 0, end: 3 });
  expect(visibleRows({ top: 99999, height: 460, rowHeight: 46, count: 3 })).toEqual({ first: 3, end: 3 });
  expect(visibleRows({ top: 0, height: 0, rowHeight: 46, count: 0 })).toEqual({ first: 0, end: 0 });
});

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

test("a row out of sight is scrolled to, one in sight is not", () => {
  const list = { top: 100, height: 100, rowHeight: 10 };
  expect(topToShow({ ...list, index: 3 })).toBe(30);
  expect(topToShow({ ...list, index: 25 })).toBe(160);
  expect(topToShow({ ...list, index: 15 })).toBe(null);
});
