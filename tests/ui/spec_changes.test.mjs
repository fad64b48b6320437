/** What a version of a spec changed, and what a person wrote. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  changesBetween,
  NEW_SPEC,
  positionsOf,
  sourceOf,
  specOf,
} from "../../airflow_provider_coordination/ui/static/spec_changes.js";

test("each field that differs is named with both values", () => {
  const before = { reads: { kinesis: { streams: "a" } }, writes: [{ parquet: { path: "/x" } }], schema: "id INT" };
  const after = { reads: { kinesis: { streams: "a", region: "eu" } }, writes: [{ parquet: { path: "/y" } }] };
  assert.deepEqual(changesBetween(before, after), [
    { path: "reads.kinesis.region", before: null, after: '"eu"' },
    { path: "writes[0].parquet.path", before: '"/x"', after: '"/y"' },
    { path: "schema", before: '"id INT"', after: null },
  ]);
});

test("the same spec changes nothing, in whatever order its fields are", () => {
  assert.deepEqual(changesBetween({ a: 1, b: { c: [] } }, { b: { c: [] }, a: 1 }), []);
});

test("null, an empty list and nothing are three things", () => {
  assert.deepEqual(
    changesBetween({ a: null, b: [] }, { a: [], c: null }).map(({ path, before, after }) => [path, before, after]),
    [
      ["a", "null", "[]"],
      ["c", null, "null"],
      ["b", "[]", null],
    ],
  );
});

test("positions are a line each", () => {
  assert.deepEqual(positionsOf("shard-1 495\n\n  shard-2 = latest\nshard-3=2026-01-01T00:00:00Z "), {
    "shard-1": "495",
    "shard-2": "latest",
    "shard-3": "2026-01-01T00:00:00Z",
  });
  assert.throws(() => positionsOf("shard-1"), /“shard-1” is not a partition and a position/);
});

test("a spec is a JSON object, and else the reason is said", () => {
  assert.deepEqual(specOf('{"version": 1}'), { version: 1 });
  assert.throws(() => specOf("version: 1"), /The spec is not valid JSON: /);
  assert.throws(() => specOf("[]"), /not a JSON object/);
});

test("the source of a first spec is the one that it names", () => {
  assert.equal(sourceOf({ ...NEW_SPEC, source: "clicks" }), "clicks");
  for (const source of ["", "  ", 7, undefined]) {
    assert.throws(() => sourceOf({ ...NEW_SPEC, source }), /The spec has no source/);
  }
});
