/** How the overview shows what there is: as cards or as a table, and by which column. The URL keeps it. */

import type { SortingState } from "@tanstack/react-table";

/** The item of the browser's storage that remembers the view. */
const REMEMBERED = "coordination-overview";

export type OverviewChoices = {
  view: "cards" | "table";
  sorting: SortingState;
  onSort: (sorting: SortingState) => void;
};

/**
 * Return the view of a URL, or else the one that was chosen last.
 *
 * @param parameters of the page's URL
 */
export function viewOf(parameters: URLSearchParams, storage: Storage): OverviewChoices["view"] {
  return (parameters.get("as") ?? storage.getItem(REMEMBERED)) === "table" ? "table" : "cards";
}

/** Remember a view for URLs without one. */
export function rememberView(view: string, storage: Storage) {
  storage.setItem(REMEMBERED, view);
}

/**
 * Return the sorting of a URL: `sort` is the name of a column, after a minus sign if the order is descending.
 *
 * @param parameters of the page's URL
 */
export function sortingOf(parameters: URLSearchParams): SortingState {
  const text = parameters.get("sort") ?? "";
  const desc = text.startsWith("-");
  return text === "" ? [] : [{ id: desc ? text.slice(1) : text, desc }];
}

/** Return the value of `sort` for a sorting; null for the order without one. */
export function sortTextOf([sorted]: SortingState) {
  return sorted === undefined ? null : `${sorted.desc ? "-" : ""}${sorted.id}`;
}
