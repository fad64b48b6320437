/** Numbers and names as a person reads them. */

import { expect, test } from "vitest";

import { capitalized, countText, endOf, ownerLabel, plural, rateText, roughText, shardLabel } from "./text";

test("the end of a long name stays in sight, since keys differ at their ends", () => {
  expect("logs/part-0001.gz".slice(endOf("logs/part-0001.gz", 7))).toBe("0001.gz");
  expect(endOf("part-01", 7)).toBe(7);
});

test("a name is never cut within a character that is made of several", () => {
  const family = "👩‍👩‍👧‍👦";
  expect(family.repeat(20).slice(endOf(family.repeat(20), 3))).toBe(family.repeat(3));
  expect(endOf(family.repeat(5), 3)).toBe(family.length * 5);
});

test("a line begins with a capital letter", () => {
  expect(capitalized("work waits")).toBe("Work waits");
  expect(capitalized("1 partition")).toBe("1 partition");
  expect(capitalized("")).toBe("");
});

test("large numbers can be read", () => {
  expect(countText(1234567)).toBe("1,234,567");
  expect(countText(null)).toBe("–");
  expect(roughText(1234567)).toBe("1.2M");
  expect(roughText(9800)).toBe("9,800");
  expect(plural(1, "partition")).toBe("1 partition");
  expect(plural(2000, "batch", "batches")).toBe("2,000 batches");
});

test("a rate has the unit that suits it", () => {
  expect(rateText(null)).toBe("–");
  expect(rateText(512)).toBe("512 B/s");
  expect(rateText(1536)).toBe("1.5 KiB/s");
  expect(rateText(52428800)).toBe("50 MiB/s");
});

test("a shard is called by its number", () => {
  expect(shardLabel("shardId-000000000012")).toBe("12");
  expect(shardLabel("shardId-000000000000")).toBe("0");
  expect(shardLabel("shardId-00000001764438000041-0a1b2c3d")).toBe("1764438000041-0a1b2c3d");
  expect(shardLabel("another-name")).toBe("another-name");
});

test("an owner is called by its task and try, where it is one", () => {
  expect(ownerLabel({ name: "n", task_id: "ingest", map_index: -1, try_number: 3 })).toBe("ingest · try 3");
  expect(ownerLabel({ name: "n", task_id: "ingest", map_index: 0, try_number: 1 })).toBe("ingest[0] · try 1");
  expect(ownerLabel({ name: "a host" })).toBe("a host");
  expect(ownerLabel(null)).toBe("");
});
