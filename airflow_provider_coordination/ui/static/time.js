/**
 * Time as a person reads it: durations, ages, and instants in the zone that was chosen in Airflow's UI.
 *
 * Ages are told by the server's clock, as each answer says it, since that of the browser may be wrong.
 */

const KEY = "timezone";
/** @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();
/** @type {Map<string, string>} */
const zones = new Map();

/**
 * Return the zone that was chosen in Airflow's UI, which keeps it as JSON; the browser's where none was.
 *
 * @param {Storage} storage
 */
export function chosenZone(storage) {
  const chosen = storage?.getItem(KEY) ?? "null";
  // Every instant on a page asks for it each second.
  if (!zones.has(chosen)) zones.set(chosen, zoneOf(chosen));
  return zones.get(chosen) ?? "UTC";
}

/** @param {string} chosen */
function zoneOf(chosen) {
  try {
    const zone = JSON.parse(chosen);
    partsOf(0, zone ?? ""); // throws for a zone that does not exist
    return zone;
  } catch {
    return Intl.DateTimeFormat().resolvedOptions().timeZone;
  }
}

/**
 * @param {number} milliseconds
 * @param {string} zone
 */
function partsOf(milliseconds, zone) {
  if (!formats.has(zone)) {
    formats.set(
      zone,
      new Intl.DateTimeFormat("en", {
        timeZone: zone,
        hourCycle: "h23",
        year: "numeric",
        month: "2-digit",
        day: "2-digit",
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
      }),
    );
  }
  const parts = /** @type {Intl.DateTimeFormat} */ (formats.get(zone)).formatToParts(milliseconds);
  return Object.fromEntries(parts.map(({ type, value }) => [type, value]));
}

/**
 * Return an instant as Airflow writes it: `2026-01-31 14:05:09`.
 *
 * @param {string} instant
 * @param {string} zone
 */
export function formatInstant(instant, zone) {
  const milliseconds = Date.parse(instant);
  if (Number.isNaN(milliseconds)) return "";
  const p = partsOf(milliseconds, zone);
  return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}:${p.second}`;
}

/**
 * Return how far a zone is ahead of UTC at an instant, in milliseconds.
 *
 * @param {number} milliseconds
 * @param {string} zone
 */
export function zoneOffset(milliseconds, zone) {
  const p = partsOf(milliseconds, zone);
  const there = Date.UTC(+p.year, +p.month - 1, +p.day, +p.hour, +p.minute, +p.second);
  return there - Math.floor(milliseconds / 1000) * 1000;
}

/** @type {[string, number][]} */
const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/**
 * Return a duration by its two largest units: `3 h 5 min`, `42 s`; one unit where `short`.
 *
 * @param {number} seconds
 * @param {{short?: boolean}} [options]
 */
export function duration(seconds, { short = false } = {}) {
  let left = Math.round(Math.abs(seconds));
  const found = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) found.push(`${count} ${unit}`);
    else if (found.length > 0) break;
    if (found.length === (short ? 1 : 2)) break;
  }
  return found.join(" ") || "0 s";
}

/**
 * Return how long ago, or in how long, an instant is: `5 min ago`, `in 40 s`, `now`.
 *
 * @param {string} instant
 * @param {number} now
 */
export function relative(instant, now) {
  const seconds = (Date.parse(instant) - now) / 1000;
  if (Number.isNaN(seconds)) return "";
  if (Math.abs(seconds) < 1) return "now";
  const text = duration(seconds, { short: Math.abs(seconds) >= 600 });
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

/**
 * Return the seconds from now until an instant; negative where it has passed.
 *
 * @param {string|null} instant
 * @param {number} now
 */
export function secondsUntil(instant, now) {
  return (Date.parse(instant ?? "") - now) / 1000;
}

/**
 * Return for how many seconds its owner has held a partition, or did until its lease ran out; null where nobody holds it,
 * or its lease does not say since when.
 *
 * @param {Api.PartitionRow} row
 * @param {number} now
 */
export function secondsHeld(row, now) {
  if (row.held_since === null) return null;
  const until = row.state === "expired" ? Date.parse(row.leased_until ?? "") : now;
  return Math.max(0, (until - Date.parse(row.held_since)) / 1000);
}

/**
 * Return how long the longest lease is held; where another may be held for longer, that it is at least that.
 *
 * @param {Api.OldestLease|null} lease
 */
export function longestLeaseText(lease) {
  if (lease === null || lease.held_for === null) return "–";
  return `${lease.is_longest ? "" : "at least "}${duration(lease.held_for, { short: true })}`;
}

/**
 * Return how far behind something is; what is less than a second is no lag that a person could act on.
 *
 * @param {number|null} seconds
 */
export function lagText(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  return seconds < 1 ? "0 s" : duration(seconds, { short: seconds >= 36000 });
}

/**
 * The server's clock, as far as its answers told it.
 *
 * An answer is a moment old when it arrives, so a small difference is no reason to let all ages jump.
 */
export class ServerClock {
  /** @type {number|null} */
  #offset = null;

  /** @param {() => number} local tells the browser's time in milliseconds */
  constructor(local = Date.now) {
    this.local = local;
  }

  /** @param {string} asOf */
  heard(asOf) {
    const offset = Date.parse(asOf) - this.local();
    if (Number.isNaN(offset)) return;
    if (this.#offset === null || Math.abs(offset - this.#offset) > 2000) this.#offset = offset;
  }

  now() {
    return this.local() + (this.#offset ?? 0);
  }
}
