import type { Column, RowData } from "@tanstack/react-table";

import type { Features } from "./features";

/** Return the `aria-sort` of a column's head; undefined if the table cannot be sorted by it. */
export function ariaSort<Of extends RowData, Value>(column: Column<Features, Of, Value>) {
  if (!column.getCanSort()) return undefined;
  const sorted = column.getIsSorted();
  if (sorted === false) return "none";
  if (column.columnDef.meta?.isOtherOrder) return "other";
  return sorted === "desc" ? "descending" : "ascending";
}
