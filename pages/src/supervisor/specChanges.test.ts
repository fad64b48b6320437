/** What a version of a spec changed, and what a person wrote. */

import { expect, test } from "vitest";

import { changesBetween, NEW_SPEC, positionsOf, sourceOf, specOf } from "./specChanges";

test("each field that differs is named with both values", () => {
  const before = { reads: { kinesis: { streams: "a" } }, writes: [{ parquet: { path: "/x" } }], schema: "id INT" };
  const after = { reads: { kinesis: { streams: "a", region: "eu" } }, writes: [{ parquet: { path: "/y" } }] };
  expect(changesBetween(before, after)).toEqual([
    { path: "reads.kinesis.region", before: null, after: '"eu"' },
    { path: "writes[0].parquet.path", before: '"/x"', after: '"/y"' },
    { path: "schema", before: '"id INT"', after: null },
  ]);
});

test("the same spec changes nothing, in whatever order its fields are", () => {
  expect(changesBetween({ a: 1, b: { c: [] } }, { b: { c: [] }, a: 1 })).toEqual([]);
});

test("null, an empty list and nothing are three things", () => {
  expect(
    changesBetween({ a: null, b: [] }, { a: [], c: null }).map(({ path, before, after }) => [path, before, after]),
  ).toEqual([
    ["a", "null", "[]"],
    ["c", null, "null"],
    ["b", "[]", null],
  ]);
});

test("positions are a line each", () => {
  expect(positionsOf("shard-1 495\n\n  shard-2 = latest\nshard-3=2026-01-01T00:00:00Z ")).toEqual({
    "shard-1": "495",
    "shard-2": "latest",
    "shard-3": "2026-01-01T00:00:00Z",
  });
  expect(() => positionsOf("shard-1")).toThrow(/“shard-1” is not a partition and a position/);
});

test("a spec is a JSON object, and else the reason is said", () => {
  expect(specOf('{"version": 1}')).toEqual({ version: 1 });
  expect(() => specOf("version: 1")).toThrow(/The spec is not valid JSON: /);
  expect(() => specOf("[]")).toThrow(/not a JSON object/);
});

test("the source of a first spec is the one that it names", () => {
  expect(sourceOf({ ...NEW_SPEC, source: "clicks" })).toBe("clicks");
  for (const source of ["", "  ", 7, undefined]) {
    expect(() => sourceOf({ ...NEW_SPEC, source })).toThrow(/The spec has no source/);
  }
});
