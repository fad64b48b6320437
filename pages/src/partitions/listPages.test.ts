/** A long list that comes page by page, and is refreshed while somebody looks at it. */

import { expect, test } from "vitest";

import { heldBack, noPages, pagesInSight, nextStart, rowsOf, withPage } from "./listPages";

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
  expect(keysOf(pages)).toBe("abc");
  expect(nextStart(pages)).toBe(undefined);
  expect(nextStart(pages.slice(0, 1))).toBe("b");
  expect(nextStart(noPages())).toBe(null);
});

test("only the pages in sight are asked for again", () => {
  const pages = loaded([["a", "b"], "b"], [["c", "d"], "d"], [["e"], null]);
  expect(pagesInSight(pages, 0, 2)).toEqual([0]);
  expect(pagesInSight(pages, 1, 3)).toEqual([0, 1]);
  expect(pagesInSight(pages, 4, 5)).toEqual([2]);
});

test("a row that did not change is the very same, so that it is not drawn again", () => {
  const pages = loaded([["a", "b"], null]);
  const after = refreshed(pages, 0, ["a", row("b", 2)], null);
  expect(rowsOf(after)[0]).toBe(rowsOf(pages)[0]);
  expect(rowsOf(after)[1].version).toBe(2);
});

test("a row that moved to another page is there once", () => {
  const pages = loaded([["a", "c"], "c"], [["d", "e"], null]);
  expect(keysOf(refreshed(pages, 0, ["a", "d"], "d"))).toBe("ade");
});

test("the following page begins where this one ends now, so that nothing between is missed", () => {
  const pages = loaded([["a", "d"], "d"], [["e"], null]);
  const after = refreshed(pages, 0, ["a", "b"], "b");
  expect(after[1].after).toBe("b");
  expect(keysOf(refreshed(after, 1, ["d", "e"], null))).toBe("abde");
});

test("pages behind the end are dropped", () => {
  const pages = loaded([["a", "b"], "b"], [["c"], null]);
  expect(keysOf(refreshed(pages, 0, ["a"], null))).toBe("a");
});

test("while somebody points at a row none moves: what is gone stays, marked, and what is new waits", () => {
  const pages = loaded([["b", "c"], null]);
  const still = refreshed(pages, 0, ["a", row("c", 2)], null, true);
  expect(keysOf(still)).toBe("bc");
  expect(rowsOf(still).map((each) => [each.isGone ?? false, each.version])).toEqual([
    [true, 1],
    [false, 2],
  ]);
  expect(heldBack(still)).toBe(2);
  const after = refreshed(still, 0, ["a", row("c", 2)], null);
  expect(keysOf(after)).toBe("ac");
  expect(heldBack(after)).toBe(0);
});

test("a page that was not there is added, also while no row may move", () => {
  const pages = withPage(loaded([["a"], "a"]), 1, answer(["b"]), { after: "a", still: true });
  expect(keysOf(pages)).toBe("ab");
});
