/** A long list that comes page by page, and is refreshed while somebody looks at it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  heldBack,
  noPages,
  pagesInSight,
  nextStart,
  rowsOf,
  withPage,
} from "../../airflow_provider_coordination/ui/static/pages.js";

const row = (key, version = 1) => ({ partition_key: key, version });
const answer = (keys, next = null) => ({
  partitions: keys.map((key) => (typeof key === "string" ? row(key) : key)),
  next,
});
const keysOf = (pages) =>
  rowsOf(pages)
    .map((each) => each.partition_key)
    .join("");
const loaded = (...pages) =>
  pages.reduce(
    (list, [keys, next], index) =>
      withPage(list, index, answer(keys, next), { after: index === 0 ? null : pages[index - 1][1], still: false }),
    noPages(),
  );
const refreshed = (pages, index, keys, next, still = false) =>
  withPage(pages, index, answer(keys, next), { after: pages[index]?.after ?? null, still });

test("pages follow each other from where the one before ended", () => {
  const pages = loaded([["a", "b"], "b"], [["c"], null]);
  assert.equal(keysOf(pages), "abc");
  assert.equal(nextStart(pages), undefined);
  assert.equal(nextStart(pages.slice(0, 1)), "b");
  assert.equal(nextStart(noPages()), null);
});

test("only the pages in sight are asked for again", () => {
  const pages = loaded([["a", "b"], "b"], [["c", "d"], "d"], [["e"], null]);
  assert.deepEqual(pagesInSight(pages, 0, 2), [0]);
  assert.deepEqual(pagesInSight(pages, 1, 3), [0, 1]);
  assert.deepEqual(pagesInSight(pages, 4, 5), [2]);
});

test("a row that did not change is the very same, so that it is not drawn again", () => {
  const pages = loaded([["a", "b"], null]);
  const after = refreshed(pages, 0, ["a", row("b", 2)], null);
  assert.equal(rowsOf(after)[0], rowsOf(pages)[0]);
  assert.equal(rowsOf(after)[1].version, 2);
});

test("a row that moved to another page is there once", () => {
  const pages = loaded([["a", "c"], "c"], [["d", "e"], null]);
  assert.equal(keysOf(refreshed(pages, 0, ["a", "d"], "d")), "ade");
});

test("the following page begins where this one ends now, so that nothing between is missed", () => {
  const pages = loaded([["a", "d"], "d"], [["e"], null]);
  const after = refreshed(pages, 0, ["a", "b"], "b");
  assert.equal(after[1].after, "b");
  assert.equal(keysOf(refreshed(after, 1, ["d", "e"], null)), "abde");
});

test("pages behind the end are dropped", () => {
  const pages = loaded([["a", "b"], "b"], [["c"], null]);
  assert.equal(keysOf(refreshed(pages, 0, ["a"], null)), "a");
});

test("while somebody points at a row none moves: what is gone stays, marked, and what is new waits", () => {
  const pages = loaded([["b", "c"], null]);
  const still = refreshed(pages, 0, ["a", row("c", 2)], null, true);
  assert.equal(keysOf(still), "bc");
  assert.deepEqual(
    rowsOf(still).map((each) => [each.isGone ?? false, each.version]),
    [
      [true, 1],
      [false, 2],
    ],
  );
  assert.equal(heldBack(still), 2);
  const after = refreshed(still, 0, ["a", row("c", 2)], null);
  assert.equal(keysOf(after), "ac");
  assert.equal(heldBack(after), 0);
});

test("a page that was not there is added, also while no row may move", () => {
  const pages = withPage(loaded([["a"], "a"]), 1, answer(["b"]), { after: "a", still: true });
  assert.equal(keysOf(pages), "ab");
});
