/** The states of supervisors: which one is shown, their order, and their warnings. */

import { expect, test } from "vitest";

import { byLag, isUnhealthy, displayStateOf, SUPERVISOR_STATES, supervisorsByUrgency, warningsOf } from "./states";

const RATES = { "5m": { processed: 5, processed_with_error: 0, unparseable: 0 } };
const STATUS = {
  source: "clicks",
  detailed_state: "RUNNING",
  dag_is_paused: false,
  suspended: null,
  terminated: null,
  jobs: [{ state: "RUNNING" }],
  task_count: { wanted: 1 },
  lag: { oldest_ms: 0 },
  stats: { rates: RATES },
};

test("a supervisor whose DAG is paused is suspended, and needs nobody", () => {
  for (const state of ["RUNNING", "NOT_SUPERVISED", "UNHEALTHY_TASKS", "PENDING"]) {
    const status = { ...STATUS, detailed_state: state, dag_is_paused: true };
    expect(displayStateOf(status)).toBe("DAG_PAUSED");
    expect(SUPERVISOR_STATES.DAG_PAUSED.label).toBe("Suspended");
    expect(isUnhealthy(status)).toBe(false);
  }
});

test("one that is suspended itself, or over, is that, whether its DAG is paused or not", () => {
  expect(displayStateOf({ ...STATUS, detailed_state: "TERMINATED", dag_is_paused: true })).toBe("TERMINATED");
  expect(displayStateOf({ ...STATUS, detailed_state: "SUSPENDED", suspended: {}, dag_is_paused: true })).toBe(
    "SUSPENDED",
  );
});

test("every unhealthy state needs a person, and no other one", () => {
  const needing = Object.keys(SUPERVISOR_STATES).filter((state) => isUnhealthy({ ...STATUS, detailed_state: state }));
  expect(needing.toSorted()).toEqual([
    "LOST_CONTACT_WITH_STREAM",
    "NOT_SUPERVISED",
    "PARTITIONS_PARKED",
    "UNABLE_TO_CONNECT_TO_STREAM",
    "UNHEALTHY_SUPERVISOR",
    "UNHEALTHY_TASKS",
  ]);
});

test("supervisors are listed by how much they need a person, then by their lag", () => {
  const statuses = [
    { ...STATUS, source: "over", detailed_state: "TERMINATED", jobs: [] },
    { ...STATUS, source: "calm" },
    { ...STATUS, source: "late", lag: { oldest_ms: 90000 } },
    { ...STATUS, source: "brand new", detailed_state: "NOT_THERE_YET" },
    { ...STATUS, source: "vanished", jobs: [{ state: "VANISHED" }] },
    { ...STATUS, source: "paused", dag_is_paused: true },
    { ...STATUS, source: "lost", detailed_state: "LOST_CONTACT_WITH_STREAM" },
  ];
  expect(supervisorsByUrgency(statuses).map((each) => each.source)).toEqual([
    "lost",
    "paused",
    "vanished",
    "late",
    "calm",
    "over",
    "brand new",
  ]);
});

for (const [what, change, warning] of [
  ["a job without a sign of life", { jobs: [{ state: "VANISHED" }] }, /^1 job is not responding\. Check its log/],
  ["no job that reads", { jobs: [{ state: "SUBMITTED" }] }, /^No job reads the source yet\. If this lasts/],
  ["bad records", { stats: { rates: { "5m": { unparseable: 2 } } } }, /^Bad records: 2\.0\/s over 5 min/],
]) {
  test(`${what} is warned of`, () => {
    const warnings = warningsOf({ ...STATUS, ...change });
    expect(warnings.length).toBe(1);
    expect(warnings[0].text).toMatch(warning);
  });
}

test("nothing is warned of where all is well, or no job is meant to read", () => {
  expect(warningsOf(STATUS)).toEqual([]);
  expect(warningsOf({ ...STATUS, detailed_state: "SUSPENDED", jobs: [] })).toEqual([]);
  expect(warningsOf({ ...STATUS, jobs: [], task_count: { wanted: 0 } })).toEqual([]);
});

test("the partition that is furthest behind comes first, and what is unknown before what is quiet", () => {
  expect(byLag({ quiet: 0, late: 5000, unknown: null, calm: 0 }).map((row) => row.key)).toEqual([
    "late",
    "unknown",
    "calm",
    "quiet",
  ]);
});
