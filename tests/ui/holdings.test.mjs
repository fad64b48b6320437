/** Since when somebody holds a partition. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { heldSince, sinceOf } from "../../airflow_provider_coordination/ui/static/holdings.js";

const held = (name, began, ended) => ({ owner: { name }, began_at: began, ended_at: ended });

test("the last holding tells since when a partition is held, if it still is", () => {
  const found = heldSince([
    { partition_key: "a", holdings: [held("one", "1", "2"), held("two", "2", null)] },
    { partition_key: "b", holdings: [held("one", "1", "2")] },
    { partition_key: "c", holdings: [held("one", null, null)] },
    { partition_key: "d", holdings: [] },
  ]);
  assert.deepEqual([...found], [["a", { owner: "two", since: "2" }]]);
});

const ROW = {
  owner: { name: "two" },
  transitions: [
    { status: "ASSIGNED", owner: { name: "two" }, at: "3" },
    { status: "ASSIGNED", owner: { name: "one" }, at: "2" },
    { status: "ASSIGNED", owner: { name: "two" }, at: "1" },
  ],
};

test("the latest time that its owner took a partition counts", () => {
  assert.equal(sinceOf(ROW), "3");
});

test("without an owner, or with one that took it before the history begins, nobody knows", () => {
  assert.equal(sinceOf({ ...ROW, owner: null }), null);
  assert.equal(sinceOf({ ...ROW, owner: { name: "three" } }), null);
});
