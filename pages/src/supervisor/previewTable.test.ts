/** A preview of records as a table. */

import { expect, test } from "vitest";

import type { Preview } from "../api/schema";
import { columnTitle, orderedColumns, summaryOf, valueText } from "./previewTable";

const preview = (...rows: [number, string][]): Preview => ({
  source: "clicks",
  kind: "kinesis",
  columns: [],
  rows: rows.map(([record, error]) => ({ record, error, values: {} })),
  notes: [],
  nothing: "",
});

test("columns of the payload come before those of the source, each in its order", () => {
  const columns = [
    { name: "stream", type: "string", origin: "source" },
    { name: "data", type: "binary", origin: "source" },
    { name: "id", type: "STRING", origin: "payload" },
    { name: "page", type: "", origin: "computed" },
    { name: "at", type: "TIMESTAMP", origin: "payload" },
  ];
  expect(orderedColumns(columns).map(columnTitle)).toEqual([
    "id STRING",
    "at TIMESTAMP",
    "page",
    "stream string",
    "data binary",
  ]);
});

test("values are shown as they are written in JSON, and texts without quotes", () => {
  expect([valueText("a"), valueText(1.5), valueText({ a: [1] }), valueText(false)]).toEqual([
    "a",
    "1.5",
    '{"a":[1]}',
    "false",
  ]);
  expect([valueText(null), valueText(undefined)]).toEqual([null, null]);
});

test("the summary counts records, rows and bad ones", () => {
  expect(summaryOf(preview([1, ""]))).toBe("1 record, none of them bad.");
  expect(summaryOf(preview([1, ""], [2, "no JSON"]))).toBe("2 records, 1 of them bad.");
  expect(summaryOf(preview([1, ""], [1, ""], [2, "x"]))).toBe("2 records as 3 rows, 1 of them bad.");
});
