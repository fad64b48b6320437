/**
 * The labels, colours and meanings of the states of partitions, sets, jobs, sinks and holdings.
 *
 * A colour is a palette of Airflow's theme. It never stands alone: the label is beside it.
 */

import type { ConnectionRow, SourceCard, SupervisorWithVerbs } from "./api/schema";
import type { State } from "./types";
import { plural } from "./format/text";

/** Return states from the label, the palette and the meaning of each. */
function statesOf(described: Record<string, [label: string, palette: string, meaning: string]>): Record<string, State> {
  return Object.fromEntries(
    Object.entries(described).map(([name, [label, palette, meaning]]) => [name, { label, palette, meaning }]),
  );
}

/** the states of a partition, in the order in which they are listed */
export const STATES = statesOf({
  parked: [
    "Parked",
    "red",
    "It failed too often, its data is gone, or a user parked it. Fix the cause, then press Reopen.",
  ],
  expired: [
    "Lease expired",
    "orange",
    "Its lease expired: the job died, or cannot reach the store. Another job takes it within a round.",
  ],
  due: ["Due", "amber", "It has reopened. The next job takes it."],
  resting: ["Resting", "yellow", "It is closed until its next retry or scan, and continues automatically."],
  held: ["Held", "cyan", "A job holds its lease and renews it."],
  awaiting: ["Awaiting", "purple", "Its job has ended. Its batches await acknowledgment."],
  waiting: ["Waiting", "gray", "It is available. The next job takes it."],
  delayed: ["Delayed", "slate", "It becomes available at a later time."],
  completed: ["Completed", "green", "All its data is delivered."],
  unleased: ["No lease", "gray", "It has no lease. It is known only from its parents or children."],
});

export const SET_STATES = statesOf({
  PENDING: ["Pending", "purple", "The batch awaits acknowledgment."],
  ACKNOWLEDGED: ["Acknowledged", "green", "Every required party has acknowledged the batch."],
  REJECTED: ["Rejected", "red", "A party rejected the batch. It is delivered again."],
  EXPIRED: ["Expired", "orange", "It was not acknowledged in time. The batch is delivered again."],
  CANCELLED: ["Cancelled", "gray", "A user cancelled the set. The batch is delivered again."],
});

export const JOB_STATES = statesOf({
  SUBMITTED: ["Submitted", "stone", "It was submitted to a cluster, and has not started."],
  STARTING: ["Starting", "stone", "Its Spark session is starting. It reads nothing yet."],
  RUNNING: ["Running", "cyan", "It holds leases and reads."],
  ENDED: ["Ended", "gray", "It has reported its result."],
});

export const SINK_STATES = statesOf({
  available: ["Available", "green", "It accepts batches."],
  unavailable: [
    "Unavailable",
    "red",
    "It is down, or refuses all batches. Its batches wait, while other sinks get theirs. Delivery resumes once you restore it.",
  ],
});

/** how a holding ended */
export const ENDS = statesOf({
  held: ["still held", "cyan", "The owner holds the lease now."],
  released: ["given back", "gray", "The worker gave the lease back."],
  completed: ["completed", "green", "All data was delivered."],
  failed: ["failed", "red", "The work on it failed."],
  expired: ["expired", "orange", "The lease expired without a renewal."],
  "taken over": ["taken over", "orange", "Another worker took the partition over."],
  "handed over": ["handed over", "blue", "The worker handed the partition over to another one."],
  closed: ["closed", "yellow", "The partition was closed until a later time."],
  parked: ["parked", "red", "The partition was parked until a user reopens it."],
  awaiting: ["awaiting acknowledgment", "purple", "The job ended. Its batches awaited acknowledgment."],
  deleted: ["deleted", "gray", "The partition was deleted."],
  reset: ["reset", "purple", "A user reset the partition."],
  unknown: ["end unknown", "gray", "The end is not in the history."],
});

/** Return a state by its name; a state that this page does not know is shown by its name. */
export function stateOf(name: string, states: Record<string, State> = STATES) {
  return Object.hasOwn(states, name) ? states[name] : { label: String(name), palette: "gray", meaning: "" };
}

/** The states of a partition, worst first. */
const BY_SEVERITY = Object.keys(STATES);

/** Return things by the severity of their states, those first that need an operator; otherwise in their order. */
export function bySeverity<Thing>(things: Thing[], stateOfThing: (thing: Thing) => string) {
  const rank = (thing: Thing) => {
    const at = BY_SEVERITY.indexOf(stateOfThing(thing));
    return at < 0 ? BY_SEVERITY.length : at;
  };
  return [...things].sort((a, b) => rank(a) - rank(b));
}

/** Return the colour of a shape in this palette, which is visible on light and dark backgrounds. */
export function fillOf(palette: string) {
  return palette === "gray" || palette === "slate" || palette === "stone"
    ? `var(--chakra-colors-${palette}-500)`
    : `var(--chakra-colors-${palette}-solid)`;
}

/** Return the colours of an area with text in this palette; a quiet area does not attract attention. */
export function areaOf(palette: string, isQuiet = false) {
  return {
    fill: `var(--chakra-colors-${palette}-${isQuiet ? "subtle" : "muted"})`,
    stroke: fillOf(palette),
    text: `var(--chakra-colors-${palette}-fg)`,
  };
}

/**
 * Return the segments of a source's status bar.
 *
 * @returns those that are not 0
 */
export function segmentsOf(card: SourceCard): { state: string; label: string; palette: string; count: number }[] {
  const counts = card.counts;

  const parts: [string, number][] = [
    ["parked", card.parked],
    ["expired", card.expired_leases ?? 0],
    ["resting", counts.CLOSED - card.parked],
    ["held", counts.ASSIGNED - (card.expired_leases ?? 0)],
    ["waiting", counts.UNASSIGNED],
    ["completed", counts.COMPLETED],
  ];
  return parts
    .filter(([, count]) => count > 0)
    .map(([state, count]) => ({ state, count, palette: STATES[state].palette, label: STATES[state].label }));
}

const LEVELS = ["error", "warning"];

/** Return the worst level among a source's alarms: "error", "warning", or null. */
export function worstLevel(card: SourceCard) {
  return LEVELS.find((level) => card.alarms.some((alarm) => alarm.level === level)) ?? null;
}

/** Return cards by urgency: alarms first, then the longest lag. */
export function byUrgency(cards: SourceCard[]) {
  return [...cards].sort(
    (a, b) =>
      levelRank(a) - levelRank(b) ||
      b.alarms.length - a.alarms.length ||
      (b.lag ?? -1) - (a.lag ?? -1) ||
      a.source.localeCompare(b.source),
  );
}

/**
 * Return the rank of a connection, for sorting: the lower, the worse its problems.
 *
 * @param cards of its sources that are known
 * @param [isUnhealthy] whether one of its supervisors needs an operator
 */
export function connectionRank(connection: ConnectionRow, cards: SourceCard[], isUnhealthy = false) {
  if (connection.problem !== null) return -1;
  if (isUnhealthy) return 0;
  return Math.min(LEVELS.length, ...cards.map(levelRank));
}

/** Return the rank of a source's worst alarm: the lower, the worse. */
export function levelRank(card: SourceCard) {
  const level = worstLevel(card);
  return level === null ? LEVELS.length : LEVELS.indexOf(level);
}

// Supervisors

/** detailed states of supervisors, those first that need an operator */
export const SUPERVISOR_STATES = statesOf({
  UNABLE_TO_CONNECT_TO_STREAM: [
    "Cannot connect",
    "red",
    "The source has never responded. Check its name, region and connection in the spec.",
  ],
  LOST_CONTACT_WITH_STREAM: [
    "Lost contact",
    "red",
    "The source has stopped responding. The errors below show why. It recovers automatically.",
  ],
  UNHEALTHY_SUPERVISOR: [
    "Unhealthy supervisor",
    "red",
    "The last checks of the source failed. The errors below show why. It recovers automatically.",
  ],
  UNHEALTHY_TASKS: [
    "Unhealthy jobs",
    "red",
    "The last jobs failed one after the other. The errors below show why. It recovers automatically.",
  ],
  PARTITIONS_PARKED: [
    "Partitions parked",
    "red",
    "No job reads the parked partitions. The errors below name them. Fix the cause, then reopen them.",
  ],
  NOT_SUPERVISED: [
    "Not supervised",
    "red",
    "It has not been supervised for some minutes. Check that its DAG has a run, and that Airflow's scheduler and triggerer are running.",
  ],
  DAG_PAUSED: [
    "Suspended",
    "purple",
    "Its DAG is paused. No job is started, and running jobs end after their task duration. Unpause the DAG to resume.",
  ],
  SUSPENDED: [
    "Suspended",
    "purple",
    "A user suspended the source: its jobs have delivered what they read, and no job is started. Press Resume to continue.",
  ],
  PENDING: ["Pending", "stone", "It was submitted, and has not checked the source yet."],
  CONNECTING_TO_STREAM: ["Connecting", "blue", "It is connecting to the source for the first time."],
  DISCOVERING_INITIAL_TASKS: ["Discovering", "blue", "It is discovering the first partitions."],
  CREATING_TASKS: ["Creating jobs", "blue", "It is starting the first jobs."],
  RUNNING: ["Running", "green", "It keeps its jobs running."],
  IDLE: ["Idle", "teal", "Everything is read, and nothing arrives. No job runs until the next record arrives."],
  STOPPING: ["Stopping", "slate", "It was terminated. Its jobs deliver what they have read."],
  TERMINATED: [
    "Terminated",
    "gray",
    "It was terminated, and no job is left. Submit a spec to continue from its last positions.",
  ],
});

export const SUPERVISED_JOB_STATES = statesOf({
  VANISHED: ["Not responding", "orange", "It did not start in time, or its lease expired. Check its log."],
  SUBMITTED: ["Submitted", "stone", "It was submitted to a cluster, and has not started."],
  STARTING: ["Starting", "stone", "Its Spark session is starting. It reads nothing yet."],
  RUNNING: ["Running", "cyan", "It reads the source."],
  ENDING: ["Ending", "slate", "It was requested to end, and delivers what it has read."],
});

const ORDER = Object.keys(SUPERVISOR_STATES);
const UNHEALTHY = ORDER.slice(0, ORDER.indexOf("DAG_PAUSED"));

/**
 * Return the state in which a supervisor is shown: one whose DAG is paused is suspended, whatever its last state.
 *
 * @returns a key of `SUPERVISOR_STATES`
 */
export function displayStateOf(status: SupervisorWithVerbs): string {
  const isOver = status.detailed_state === "STOPPING" || status.detailed_state === "TERMINATED";
  return status.dag_is_paused && !isOver && status.suspended === null ? "DAG_PAUSED" : status.detailed_state;
}

/** Return whether a supervisor needs an operator. */
export function isUnhealthy(status: SupervisorWithVerbs) {
  return UNHEALTHY.includes(displayStateOf(status));
}

/** Return supervisors by urgency: by their states, then by their lag. */
export function supervisorsByUrgency(statuses: SupervisorWithVerbs[]) {
  const rank = (status: SupervisorWithVerbs) => {
    const at = ORDER.indexOf(displayStateOf(status));
    return at < 0 ? ORDER.length : at;
  };
  return [...statuses].sort(
    (a, b) =>
      rank(a) - rank(b) ||
      warningsOf(b).length - warningsOf(a).length ||
      (b.lag.oldest_ms ?? -1) - (a.lag.oldest_ms ?? -1) ||
      a.source.localeCompare(b.source),
  );
}

/** Return the warnings of a supervisor: each says what it means and what to do, and where the manual says more. */
export function warningsOf(status: SupervisorWithVerbs): { text: string; topic: string }[] {
  const vanished = status.jobs.filter((job) => job.state === "VANISHED").length;
  const works = status.jobs.some((job) => job.state === "RUNNING" || job.state === "ENDING");
  const isMeantToWork = displayStateOf(status) === "RUNNING" && (status.task_count.wanted ?? 0) > 0;
  const bad = badOf(status.stats.rates["5m"]);
  return [
    vanished > 0 && {
      text: `${plural(vanished, "job is", "jobs are")} not responding. Check ${vanished === 1 ? "its log" : "their logs"}; the supervisor starts new jobs`,
      topic: "job",
    },
    isMeantToWork &&
      !works &&
      vanished === 0 && { text: "No job reads the source yet. If this lasts, check the cluster", topic: "job" },
    bad > 0 && {
      text: `Bad records: ${bad < 0.1 ? "less than 0.1" : bad.toFixed(1)}/s over 5 min. Read their errors below`,
      topic: "bad-records",
    },
  ].filter((warning) => warning !== false);
}

/** Return the bad records per second: the transform failed on them, or they do not match the schema. */
function badOf(rates: Record<string, number> | undefined) {
  return (rates?.processed_with_error ?? 0) + (rates?.unparseable ?? 0);
}

/**
 * Return the partitions of a lag, the one first that is furthest behind. Partitions with an unknown lag come after those
 * with a lag.
 *
 * @param partitions lag in milliseconds, by key
 */
export function byLag(partitions: Record<string, number | null>): { key: string; lag: number | null }[] {
  const behind = (lag: number | null) => (lag === null ? 0.5 : lag);
  return Object.entries(partitions)
    .map(([key, lag]) => ({ key, lag }))
    .sort((a, b) => behind(b.lag) - behind(a.lag) || (a.key < b.key ? -1 : 1));
}
