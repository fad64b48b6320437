/** A preview of records as a table: those columns first that the spec adds. */

import type { Preview, PreviewColumn } from "../api/schema";

const ORDER: Record<string, number> = { payload: 0, computed: 1, source: 2 };

/** Return the columns, those of the payload first, as they are what a spec decides on. */
export function orderedColumns(columns: PreviewColumn[]): PreviewColumn[] {
  return columns.toSorted((first, second) => (ORDER[first.origin] ?? 2) - (ORDER[second.origin] ?? 2));
}

/** Return the title of a column: its name and its type. */
export function columnTitle({ name, type }: PreviewColumn) {
  return type === "" ? name : `${name} ${type}`;
}

/** Return a value as text; null for one that is not there. */
export function valueText(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Return what was read: the number of records and of bad rows. */
export function summaryOf({ rows }: Preview) {
  const records = new Set(rows.map((row) => row.record)).size;
  const bad = rows.filter((row) => row.error !== "").length;
  const read = records === 1 ? "1 record" : `${records} records`;
  const asRows = rows.length === records ? "" : ` as ${rows.length} rows`;
  return `${read}${asRows}, ${bad === 0 ? "none" : bad} of them bad.`;
}
