/** Numbers and names as a person reads them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  capitalized,
  countText,
  endOf,
  ownerLabel,
  plural,
  rateText,
  roughText,
  shardLabel,
} from "../../airflow_provider_coordination/ui/static/text.js";

test("the end of a long name stays in sight, since keys differ at their ends", () => {
  assert.equal("logs/part-0001.gz".slice(endOf("logs/part-0001.gz", 7)), "0001.gz");
  assert.equal(endOf("part-01", 7), 7);
});

test("a name is never cut within a character that is made of several", () => {
  const family = "👩‍👩‍👧‍👦";
  assert.equal(family.repeat(20).slice(endOf(family.repeat(20), 3)), family.repeat(3));
  assert.equal(endOf(family.repeat(5), 3), family.length * 5);
});

test("a line begins with a capital letter", () => {
  assert.equal(capitalized("work waits"), "Work waits");
  assert.equal(capitalized("1 partition"), "1 partition");
  assert.equal(capitalized(""), "");
});

test("large numbers can be read", () => {
  assert.equal(countText(1234567), "1,234,567");
  assert.equal(countText(null), "–");
  assert.equal(roughText(1234567), "1.2M");
  assert.equal(roughText(9800), "9,800");
  assert.equal(plural(1, "partition"), "1 partition");
  assert.equal(plural(2000, "batch", "batches"), "2,000 batches");
});

test("a rate has the unit that suits it", () => {
  assert.equal(rateText(null), "–");
  assert.equal(rateText(512), "512 B/s");
  assert.equal(rateText(1536), "1.5 KiB/s");
  assert.equal(rateText(52428800), "50 MiB/s");
});

test("a shard is called by its number", () => {
  assert.equal(shardLabel("shardId-000000000012"), "12");
  assert.equal(shardLabel("shardId-000000000000"), "0");
  assert.equal(shardLabel("shardId-00000001764438000041-0a1b2c3d"), "1764438000041-0a1b2c3d");
  assert.equal(shardLabel("another-name"), "another-name");
});

test("an owner is called by its task and try, where it is one", () => {
  assert.equal(ownerLabel({ name: "n", task_id: "ingest", map_index: -1, try_number: 3 }), "ingest · try 3");
  assert.equal(ownerLabel({ name: "n", task_id: "ingest", map_index: 0, try_number: 1 }), "ingest[0] · try 1");
  assert.equal(ownerLabel({ name: "a host" }), "a host");
  assert.equal(ownerLabel(null), "");
});
