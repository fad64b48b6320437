/** What the states of supervisors and of their jobs are called, which of them need a person, and how lists are sorted. */

import { plural } from "./text.js";

/** @type {Record<string, State>} detailed states of supervisors, those first that need a person */
export const SUPERVISOR_STATES = {
  UNABLE_TO_CONNECT_TO_STREAM: {
    label: "Cannot connect",
    palette: "red",
    meaning: "The source has never answered. Check its name, region and connection in the spec.",
  },
  LOST_CONTACT_WITH_STREAM: {
    label: "Lost contact",
    palette: "red",
    meaning: "The source answered before, and does not any more.",
  },
  UNHEALTHY_SUPERVISOR: {
    label: "Unhealthy supervisor",
    palette: "red",
    meaning: "The last looks at the source failed. The errors below say why.",
  },
  UNHEALTHY_TASKS: {
    label: "Unhealthy jobs",
    palette: "red",
    meaning: "The last jobs failed, one after the other. The errors below say why.",
  },
  NOT_SUPERVISED: {
    label: "Not supervised",
    palette: "red",
    meaning: "Nobody has supervised it for minutes: its DAG is gone or has no run, or Airflow's scheduler or triggerer is down.",
  },
  DAG_PAUSED: {
    label: "Suspended",
    palette: "purple",
    meaning: "Its DAG is paused: no job is started, and those that run end after their time. Unpause the DAG to resume.",
  },
  SUSPENDED: {
    label: "Suspended",
    palette: "purple",
    meaning: "Somebody suspended the source: its jobs have delivered what they read, and none is started.",
  },
  PENDING: { label: "Pending", palette: "stone", meaning: "It was submitted, and its first look is still to come." },
  CONNECTING_TO_STREAM: { label: "Connecting", palette: "blue", meaning: "It asks the source for the first time." },
  DISCOVERING_INITIAL_TASKS: { label: "Discovering", palette: "blue", meaning: "It looks for the first partitions." },
  CREATING_TASKS: { label: "Creating jobs", palette: "blue", meaning: "It starts the first jobs." },
  RUNNING: { label: "Running", palette: "green", meaning: "It keeps its jobs running." },
  STOPPING: {
    label: "Stopping",
    palette: "slate",
    meaning: "It was terminated, and its jobs deliver what they have read.",
  },
  TERMINATED: {
    label: "Terminated",
    palette: "gray",
    meaning: "It was terminated, and no job is left. Submit a spec to begin anew where it ended.",
  },
};

/** @type {Record<string, State>} */
export const SUPERVISED_JOB_STATES = {
  VANISHED: { label: "No sign of life", palette: "orange", meaning: "It did not begin in time, or its lease ran out." },
  SUBMITTED: { label: "Submitted", palette: "stone", meaning: "It was handed to a cluster, and has not begun." },
  STARTING: { label: "Starting", palette: "stone", meaning: "Its Spark session comes up: it reads nothing yet." },
  RUNNING: { label: "Running", palette: "cyan", meaning: "It reads." },
  ENDING: { label: "Ending", palette: "slate", meaning: "It was asked to end, and delivers what it has read." },
};

const ORDER = Object.keys(SUPERVISOR_STATES);
const UNHEALTHY = ORDER.slice(0, ORDER.indexOf("DAG_PAUSED"));

/**
 * Return the state that a supervisor is shown in: one whose DAG is paused is suspended, whatever it noted last.
 *
 * @param {Api.SupervisorStatus} status
 * @returns {string} a key of `SUPERVISOR_STATES`
 */
export function standingOf(status) {
  const isOver = status.detailed_state === "STOPPING" || status.detailed_state === "TERMINATED";
  return status.dag_is_paused && !isOver && status.suspended === null ? "DAG_PAUSED" : status.detailed_state;
}

/**
 * Return whether a supervisor needs a person.
 *
 * @param {Api.SupervisorStatus} status
 */
export function isUnhealthy(status) {
  return UNHEALTHY.includes(standingOf(status));
}

/**
 * Return supervisors in the order in which somebody who is paged wants them: by their states, then by their lag.
 *
 * @param {Api.SupervisorStatus[]} statuses
 */
export function supervisorsByUrgency(statuses) {
  /** @param {Api.SupervisorStatus} status */
  const rank = (status) => {
    const at = ORDER.indexOf(standingOf(status));
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

/**
 * Return what else a person should look at, each in a sentence.
 *
 * @param {Api.SupervisorStatus} status
 * @returns {string[]}
 */
export function warningsOf(status) {
  const vanished = status.jobs.filter((job) => job.state === "VANISHED").length;
  const works = status.jobs.some((job) => job.state === "RUNNING" || job.state === "ENDING");
  const isMeantToWork = standingOf(status) === "RUNNING" && (status.task_count.wanted ?? 0) > 0;
  const bad = badOf(status.stats.rates["5m"]);
  return [
    vanished > 0 && `${plural(vanished, "job gives", "jobs give")} no sign of life`,
    isMeantToWork && !works && vanished === 0 && "No job reads the source yet",
    bad > 0 && `Bad records arrive: ${bad < 0.1 ? "less than 0.1" : bad.toFixed(1)} a second over 5 minutes`,
  ].filter((text) => text !== false);
}

/**
 * Return how many records a second were bad: the transform raised, or they do not fit the schema.
 *
 * @param {Record<string, number>|undefined} rates
 */
function badOf(rates) {
  return (rates?.processed_with_error ?? 0) + (rates?.unparseable ?? 0);
}

/**
 * Return the partitions of a lag, the one first that is furthest behind; those of which it is unknown come after those
 * that are behind.
 *
 * @param {Record<string, number|null>} partitions lag in milliseconds, by key
 * @returns {{key: string, lag: number|null}[]}
 */
export function byLag(partitions) {
  const behind = (/** @type {number|null} */ lag) => (lag === null ? 0.5 : lag);
  return Object.entries(partitions)
    .map(([key, lag]) => ({ key, lag }))
    .sort((a, b) => behind(b.lag) - behind(a.lag) || (a.key < b.key ? -1 : 1));
}

/**
 * Return the verbs that make sense for a supervisor in its state; suspending and resuming belong to its source.
 *
 * @param {Api.SupervisorStatus} status
 * @returns {SupervisorVerb[]}
 */
export function verbsFor(status) {
  if (status.terminated !== null) return ["submit"];
  return status.jobs.length > 0 ? ["submit", "handover", "reset", "terminate"] : ["submit", "reset", "terminate"];
}
