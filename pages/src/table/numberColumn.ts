import type { Column } from "../types";

/** Return a column of numbers by which a table can be sorted. `text` shows one that is known or not. */
export function numberColumn<Of>(
  name: string,
  title: string,
  value: (row: Of) => number | null | undefined,
  text: (value: number | null) => string,
): Column<Of> {
  return { name, title, align: "end", value, cell: (row) => text(value(row) ?? null) };
}
