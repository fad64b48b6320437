/** Which rows of a long list are drawn, and where it stays when rows come and go. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { anchoredTop, topToShow, visibleRows } from "../../airflow_provider_coordination/ui/static/virtual_rows.js";

test("of ten thousand rows only those in sight are drawn, and some around them", () => {
  assert.deepEqual(visibleRows({ top: 4600, height: 460, rowHeight: 46, count: 10000, around: 5 }), {
    first: 95,
    end: 115,
  });
});

test("at both ends there are no more rows than there are", () => {
  assert.deepEqual(visibleRows({ top: 0, height: 460, rowHeight: 46, count: 3 }), { first: 0, end: 3 });
  assert.deepEqual(visibleRows({ top: 99999, height: 460, rowHeight: 46, count: 3 }), { first: 3, end: 3 });
  assert.deepEqual(visibleRows({ top: 0, height: 0, rowHeight: 46, count: 0 }), { first: 0, end: 0 });
});

const place = (top, before, after) => anchoredTop({ top, rowHeight: 10, before, after });

test("rows that come above do not move those in sight", () => {
  assert.equal(place(25, ["a", "b", "c", "d"], ["new", "a", "b", "c", "d"]), 35);
});

test("rows that go above do not move those in sight", () => {
  assert.equal(place(25, ["a", "b", "c", "d"], ["b", "c", "d"]), 15);
});

test("where the row on top is gone, the next one keeps its place", () => {
  assert.equal(place(20, ["a", "b", "c", "d"], ["a", "b", "d"]), 10);
});

test("a list of other rows stays where it is scrolled to", () => {
  assert.equal(place(20, ["a", "b", "c"], ["x", "y", "z"]), 20);
});

test("a row out of sight is scrolled to, one in sight is not", () => {
  const list = { top: 100, height: 100, rowHeight: 10 };
  assert.equal(topToShow({ ...list, index: 3 }), 30);
  assert.equal(topToShow({ ...list, index: 25 }), 160);
  assert.equal(topToShow({ ...list, index: 15 }), null);
});
