/**
 * What the states of partitions, sets, jobs and holdings are called, in which colour they are drawn, and what they mean.
 *
 * A colour is a palette of Airflow's theme, never the only thing that tells a state: its name stands beside it.
 */

/** @type {Record<string, State>} the states of a partition, in the order in which they are listed */
export const STATES = {
  parked: {
    label: "Parked",
    palette: "red",
    meaning: "It failed too often, its data is gone, or a person put it aside. Only a person reopens it.",
  },
  expired: {
    label: "Lease over",
    palette: "orange",
    meaning: "Its lease ran out: the job died, or cannot reach the store. Another job takes it within a round.",
  },
  due: {
    label: "Due",
    palette: "amber",
    meaning: "Its rest is over, and nobody has taken it yet. The next job does.",
  },
  resting: { label: "Resting", palette: "yellow", meaning: "It is put aside for a while, and goes on by itself." },
  held: { label: "Held", palette: "cyan", meaning: "A job has it on lease, and renews that." },
  awaiting: {
    label: "Awaiting",
    palette: "purple",
    meaning: "Its job has ended; its batches wait until somebody acknowledges them.",
  },
  waiting: { label: "Waiting", palette: "gray", meaning: "It is available, and nobody has it: the next job takes it." },
  delayed: { label: "Delayed", palette: "slate", meaning: "It becomes available at a later time." },
  completed: { label: "Completed", palette: "green", meaning: "Everything of it is delivered." },
  unleased: { label: "No lease", palette: "gray", meaning: "Known from its relatives alone; it has no lease." },
};

/** @type {Record<string, State>} */
export const SET_STATES = {
  PENDING: { label: "Pending", palette: "purple", meaning: "Somebody still owes a word for this batch." },
  ACKNOWLEDGED: { label: "Acknowledged", palette: "green", meaning: "All said yes." },
  REJECTED: { label: "Rejected", palette: "red", meaning: "Somebody said no. The batch is delivered again." },
  EXPIRED: { label: "Expired", palette: "orange", meaning: "Nobody said anything in time. It is delivered again." },
  CANCELLED: { label: "Cancelled", palette: "gray", meaning: "A person took it back. It is delivered again." },
};

/** @type {Record<string, State>} */
export const JOB_STATES = {
  SUBMITTED: { label: "Submitted", palette: "stone", meaning: "It was handed to a cluster, and has not begun." },
  STARTING: { label: "Starting", palette: "stone", meaning: "Its Spark session comes up: it reads nothing yet." },
  RUNNING: { label: "Running", palette: "cyan", meaning: "It takes leases and reads." },
  ENDED: { label: "Ended", palette: "gray", meaning: "It has told how it ended." },
};

/** @type {Record<string, State>} */
export const SINK_STATES = {
  taking: { label: "Takes batches", palette: "green", meaning: "It takes what it is given." },
  away: { label: "Takes nothing", palette: "red", meaning: "It is down, or refuses everything. Its batches wait; the other sinks get theirs." },
};

/** @type {Record<string, State>} how a holding ended */
export const ENDS = {
  held: { label: "still held", palette: "cyan", meaning: "The lease is held now." },
  released: { label: "given back", palette: "gray", meaning: "The worker gave it back." },
  completed: { label: "completed", palette: "green", meaning: "Everything was delivered." },
  failed: { label: "failed", palette: "red", meaning: "The work on it failed." },
  expired: { label: "ran out", palette: "orange", meaning: "The lease ran out, and nobody renewed it." },
  "taken over": { label: "taken over", palette: "orange", meaning: "Another worker took it." },
  "handed over": { label: "handed over", palette: "blue", meaning: "The worker handed it to another one." },
  closed: { label: "put aside", palette: "yellow", meaning: "It was closed until a later time." },
  parked: { label: "parked", palette: "red", meaning: "It was put aside until a person reopens it." },
  awaiting: { label: "left to wait", palette: "purple", meaning: "Its job ended; its batches waited for a word." },
  deleted: { label: "deleted", palette: "gray", meaning: "The partition was deleted." },
  reset: { label: "reset", palette: "purple", meaning: "A person made it start anew." },
  unknown: { label: "end unknown", palette: "gray", meaning: "The history does not tell how it ended." },
};

/**
 * Return a state by its name; one that this page does not know is shown by that name.
 *
 * @param {string} name
 * @param {Record<string, State>} [states]
 */
export function stateOf(name, states = STATES) {
  return Object.hasOwn(states, name) ? states[name] : { label: String(name), palette: "gray", meaning: "" };
}

/** The states of a partition, worst first. */
const BY_TROUBLE = Object.keys(STATES);

/**
 * Return things in the order of the states that they are in, those first that need a person; else as they were.
 *
 * @template Thing
 * @param {Thing[]} things
 * @param {(thing: Thing) => string} stateOfThing
 */
export function byTrouble(things, stateOfThing) {
  /** @param {Thing} thing */
  const rank = (thing) => {
    const at = BY_TROUBLE.indexOf(stateOfThing(thing));
    return at < 0 ? BY_TROUBLE.length : at;
  };
  return [...things].sort((a, b) => rank(a) - rank(b));
}

/**
 * Return the colour for a shape of this palette: it stands out from a light and from a dark ground.
 *
 * @param {string} palette
 */
export function fillOf(palette) {
  return palette === "gray" || palette === "slate" || palette === "stone"
    ? `var(--chakra-colors-${palette}-500)`
    : `var(--chakra-colors-${palette}-solid)`;
}

/**
 * Return the colours for an area of this palette with text on it; a quiet one does not ask for a look.
 *
 * @param {string} palette
 * @param {boolean} [isQuiet]
 */
export function areaOf(palette, isQuiet = false) {
  return {
    fill: `var(--chakra-colors-${palette}-${isQuiet ? "subtle" : "muted"})`,
    stroke: fillOf(palette),
    text: `var(--chakra-colors-${palette}-fg)`,
  };
}

/**
 * Return what a source's status bar is made of.
 *
 * @param {Api.SourceCard} card
 * @returns {{state: string, label: string, palette: string, count: number}[]} those that are not 0
 */
export function segmentsOf(card) {
  const counts = card.counts;
  /** @type {[string, number][]} */
  const parts = [
    ["parked", card.parked],
    ["expired", card.expired_leases],
    ["resting", counts.CLOSED - card.parked],
    ["held", counts.ASSIGNED - card.expired_leases],
    ["waiting", counts.UNASSIGNED],
    ["completed", counts.COMPLETED],
  ];
  return parts
    .filter(([, count]) => count > 0)
    .map(([state, count]) => ({ state, count, palette: STATES[state].palette, label: STATES[state].label }));
}

const LEVELS = ["error", "warning"];

/**
 * Return the worst level among a source's alarms: "error", "warning", or null.
 *
 * @param {Api.SourceCard} card
 */
export function worstLevel(card) {
  return LEVELS.find((level) => card.alarms.some((alarm) => alarm.level === level)) ?? null;
}

/**
 * Return cards in the order in which somebody who is paged wants them: alarms first, then the longest lag.
 *
 * @param {Api.SourceCard[]} cards
 */
export function byUrgency(cards) {
  return [...cards].sort(
    (a, b) =>
      rankOf(a) - rankOf(b) ||
      b.alarms.length - a.alarms.length ||
      (b.lag ?? -1) - (a.lag ?? -1) ||
      a.source.localeCompare(b.source),
  );
}

/**
 * Return cards in the order in which their sources were shown, those of new sources last.
 *
 * @param {Api.SourceCard[]} cards
 * @param {string[]} shown the sources, in order
 */
export function inOrder(cards, shown) {
  const places = new Map(shown.map((source, place) => [source, place]));
  const placeOf = (/** @type {Api.SourceCard} */ card) => places.get(card.source) ?? shown.length;
  return [...cards].sort((a, b) => placeOf(a) - placeOf(b) || a.source.localeCompare(b.source));
}

/**
 * Return how much a connection is in trouble, for sorting: the less, the worse.
 *
 * @param {Api.ConnectionRow} connection
 * @param {Api.SourceCard[]} cards of its sources, as far as they are known
 * @param {boolean} [isUnhealthy] whether one of its supervisors needs a person
 */
export function connectionRank(connection, cards, isUnhealthy = false) {
  if (connection.problem !== null) return -1;
  if (isUnhealthy) return 0;
  return Math.min(LEVELS.length, ...cards.map(rankOf));
}

/** @param {Api.SourceCard} card */
function rankOf(card) {
  const level = worstLevel(card);
  return level === null ? LEVELS.length : LEVELS.indexOf(level);
}

/**
 * Return which actions make sense for a partition in this state.
 *
 * @param {Row} row
 */
export function actionsFor(row) {
  /** @type {Action[]} */
  const actions = [];
  if (row.status === "ASSIGNED") actions.push("release");
  if (row.status === "CLOSED" || (row.status === "UNASSIGNED" && (row.attempts > 0 || row.state === "delayed"))) {
    actions.push("reopen");
  }
  if (row.status !== "COMPLETED" && row.state !== "parked") actions.push("park");
  actions.push("reset");
  return actions;
}
