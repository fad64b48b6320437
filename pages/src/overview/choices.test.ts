// @vitest-environment happy-dom

/** The choices of the overview are kept in its URL, and the view is remembered. */

import { beforeEach, expect, test } from "vitest";

import { rememberView, sortingOf, sortTextOf, viewOf } from "./choices";

const url = (text = "") => new URLSearchParams(text);

beforeEach(() => localStorage.clear());

test("the view of the URL is shown, or else the one that was chosen last", () => {
  expect(viewOf(url(), localStorage)).toBe("cards");
  expect(viewOf(url("as=table"), localStorage)).toBe("table");
  rememberView("table", localStorage);
  expect(viewOf(url(), localStorage)).toBe("table");
  expect(viewOf(url("as=cards"), localStorage)).toBe("cards");
});

test.each(["lag", "-lag", "source"])("the URL keeps the sorting %s", (text) => {
  expect(sortTextOf(sortingOf(url(`sort=${text}`)))).toBe(text);
});

test("without a sorting the order is by urgency", () => {
  expect(sortingOf(url())).toEqual([]);
  expect(sortTextOf([])).toBe(null);
});
