/** The states of supervisors and their jobs: labels, meanings, urgency and warnings. */

import { plural } from "./text";
import type { SupervisorWithVerbs } from "./schema";
import type { State } from "./types";

/** detailed states of supervisors, those first that need an operator */
export const SUPERVISOR_STATES: Record<string, State> = {
  UNABLE_TO_CONNECT_TO_STREAM: {
    label: "Cannot connect",
    palette: "red",
    meaning: "The source has never responded. Check its name, region and connection in the spec.",
  },
  LOST_CONTACT_WITH_STREAM: {
    label: "Lost contact",
    palette: "red",
    meaning: "The source responded before, and no longer does. The errors below show why. It recovers automatically.",
  },
  UNHEALTHY_SUPERVISOR: {
    label: "Unhealthy supervisor",
    palette: "red",
    meaning: "The last checks of the source failed. The errors below show why. It recovers automatically.",
  },
  UNHEALTHY_TASKS: {
    label: "Unhealthy jobs",
    palette: "red",
    meaning: "The last jobs failed one after the other. The errors below show why. It recovers automatically.",
  },
  PARTITIONS_PARKED: {
    label: "Partitions parked",
    palette: "red",
    meaning: "No job reads the parked partitions. The errors below name them. Fix the cause, then reopen them.",
  },
  NOT_SUPERVISED: {
    label: "Not supervised",
    palette: "red",
    meaning:
      "No DAG has supervised it for minutes. Check that its DAG has a run, and that Airflow's scheduler and triggerer run.",
  },
  DAG_PAUSED: {
    label: "Suspended",
    palette: "purple",
    meaning: "Its DAG is paused: no job is started, and running jobs end after their time. Unpause the DAG to resume.",
  },
  SUSPENDED: {
    label: "Suspended",
    palette: "purple",
    meaning:
      "A user suspended the source: its jobs have delivered what they read, and no job is started. Press Resume to continue.",
  },
  PENDING: { label: "Pending", palette: "stone", meaning: "It was submitted, and has not checked the source yet." },
  CONNECTING_TO_STREAM: {
    label: "Connecting",
    palette: "blue",
    meaning: "It connects to the source for the first time.",
  },
  DISCOVERING_INITIAL_TASKS: { label: "Discovering", palette: "blue", meaning: "It discovers the first partitions." },
  CREATING_TASKS: { label: "Creating jobs", palette: "blue", meaning: "It starts the first jobs." },
  RUNNING: { label: "Running", palette: "green", meaning: "It keeps its jobs running." },
  IDLE: {
    label: "Idle",
    palette: "teal",
    meaning: "Everything is read and nothing arrives, so no job runs. A record starts the jobs.",
  },
  STOPPING: {
    label: "Stopping",
    palette: "slate",
    meaning: "It was terminated. Its jobs deliver what they have read.",
  },
  TERMINATED: {
    label: "Terminated",
    palette: "gray",
    meaning: "It was terminated, and no job is left. Submit a spec to continue from its last positions.",
  },
};

export const SUPERVISED_JOB_STATES: Record<string, State> = {
  VANISHED: {
    label: "No sign of life",
    palette: "orange",
    meaning: "It did not start in time, or its lease expired. Check its log.",
  },
  SUBMITTED: { label: "Submitted", palette: "stone", meaning: "It was submitted to a cluster, and has not started." },
  STARTING: { label: "Starting", palette: "stone", meaning: "Its Spark session is starting. It reads nothing yet." },
  RUNNING: { label: "Running", palette: "cyan", meaning: "It reads the source." },
  ENDING: { label: "Ending", palette: "slate", meaning: "It was requested to end, and delivers what it has read." },
};

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
      text: `${plural(vanished, "job shows", "jobs show")} no sign of life. Check ${vanished === 1 ? "its log" : "their logs"}; the supervisor starts new jobs`,
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
