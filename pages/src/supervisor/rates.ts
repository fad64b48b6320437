/** The charts of a supervised source: lag, freshness, watermark, delivered records and bytes, bad records, and the number of jobs. */

import type { RecordCounts } from "../api/schema";
import { WINDOWS } from "../chart/series";
import { useNow } from "../format/clock";

/** The counters of records that were not delivered normally. Everybody can distinguish orange and blue, and the dashes. */
export const BAD_RECORDS: [keyof RecordCounts, string, string, string | undefined][] = [
  ["processed_with_error", "with error", "orange", undefined],
  ["unparseable", "unparseable", "blue", "7 3"],
  ["thrown_away", "dropped", "gray", "2 3"],
];

export function perSecond(value: number) {
  if (value === 0) return "0/s";
  return `${value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(2).replace(/\.0+$/, "")}/s`;
}

/** Return the window of the charts from the URL: its name, its start and its end. */
export function useWindow(parameters: URLSearchParams) {
  const chosen = parameters.get("window") ?? "";
  const name = (Object.hasOwn(WINDOWS, chosen) ? chosen : "1h") as keyof typeof WINDOWS;
  // Rounded to 10 s, so that the charts are not drawn each second.
  const until = Math.ceil(useNow() / 10000) * 10000;
  return { name, window: { since: until - WINDOWS[name], until } };
}
