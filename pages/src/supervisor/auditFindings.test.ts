/** What an audit found, as text. */

import { expect, test } from "vitest";

import { itemsOf, summaryOf } from "./auditFindings";

const GAP = {
  state: "gap",
  sink: "main",
  partition_key: "p",
  after: "",
  until: "20",
  batches: 1,
  reason: "file 'x' is gone",
  remedy: "airflow-coordination repair clicks p",
  is_explained: false,
};
const FACTS = { source: "clicks", state: "complete", partitions: 2, complete: 2, findings: [], left: 0, notes: [] };

test("a complete source says so, with its partitions", () => {
  expect(summaryOf(FACTS)).toBe("Everything is there exactly once: 2 of 2 partitions complete.");
  expect(itemsOf(FACTS)).toEqual([]);
});

test("a finding has sink, partition, range, cause and remedy", () => {
  const [item] = itemsOf({ ...FACTS, findings: [GAP] });
  expect(item.content).toBe(
    "main, p (the start, 20]: gap. file 'x' is gone. Remedy: airflow-coordination repair clicks p.",
  );
  expect([item.outcome, item.palette]).toEqual(["gap", "red"]);
});

test("what is explained is not alarming, and a finding without a range has none", () => {
  const explained = { ...GAP, is_explained: true, after: null, until: null, partition_key: "", remedy: "" };
  const [item] = itemsOf({ ...FACTS, findings: [explained] });
  expect(item.content).toBe("main: gap, explained. file 'x' is gone.");
  expect([item.outcome, item.palette]).toEqual(["explained", "gray"]);
});

test("what is left out, and notes, follow the findings", () => {
  const items = itemsOf({ ...FACTS, findings: [GAP], left: 3, notes: ["the log has expired"] });
  expect(items.slice(1).map((item) => item.content)).toEqual([
    "3 findings more: use the command audit",
    "the log has expired",
  ]);
});

test("the most severe state is named", () => {
  expect(summaryOf({ ...FACTS, state: "gap", complete: 1 })).toBe(
    "The most severe finding is gap: 1 of 2 partitions complete.",
  );
});
