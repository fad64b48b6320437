/**
 * Time as text: durations, ages, and instants in the time zone that is selected in Airflow's UI.
 *
 * Ages use the server's clock from its responses, as the browser's clock may be wrong.
 */

import type { OldestLease, PartitionRow } from "../api/schema";

const KEY = "timezone";

const formats = new Map<string, Intl.DateTimeFormat>();

const zones = new Map<string, string>();

/** Return the time zone that is selected in Airflow's UI, which stores it as JSON; otherwise the browser's. */
export function chosenZone(storage: Storage) {
  const chosen = storage?.getItem(KEY) ?? "null";
  // Every instant on a page needs it each second.
  if (!zones.has(chosen)) zones.set(chosen, zoneOf(chosen));
  return zones.get(chosen) ?? "UTC";
}

function zoneOf(chosen: string) {
  try {
    const zone = JSON.parse(chosen);
    partsOf(0, zone ?? ""); // throws for a zone that does not exist
    return zone;
  } catch {
    return Intl.DateTimeFormat().resolvedOptions().timeZone;
  }
}

function partsOf(milliseconds: number, zone: string) {
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
  const parts = (formats.get(zone) as Intl.DateTimeFormat).formatToParts(milliseconds);
  return Object.fromEntries(parts.map(({ type, value }) => [type, value]));
}

/** Return an instant in the format of Airflow: `2026-01-31 14:05:09`. */
export function formatInstant(instant: string, zone: string) {
  const milliseconds = Date.parse(instant);
  if (Number.isNaN(milliseconds)) return "";
  const p = partsOf(milliseconds, zone);
  return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}:${p.second}`;
}

/** Return the offset of a time zone from UTC at an instant, in milliseconds. */
export function zoneOffset(milliseconds: number, zone: string) {
  const p = partsOf(milliseconds, zone);
  const there = Date.UTC(+p.year, +p.month - 1, +p.day, +p.hour, +p.minute, +p.second);
  return there - Math.floor(milliseconds / 1000) * 1000;
}

const UNITS: [string, number][] = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** Return a duration in its two largest units: `3 h 5 min`, `42 s`; in one unit if `short`. */
export function duration(seconds: number, { short = false }: { short?: boolean } = {}) {
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

/** Return an instant relative to now: `5 min ago`, `in 40 s`, `now`. */
export function relative(instant: string, now: number, { short = false } = {}) {
  const seconds = (Date.parse(instant) - now) / 1000;
  if (Number.isNaN(seconds)) return "";
  if (Math.abs(seconds) < 1) return "now";
  const text = duration(seconds, { short: short || Math.abs(seconds) >= 600 });
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

/** Return the seconds from now until an instant; negative if it has passed. */
export function secondsUntil(instant: string | null, now: number) {
  return (Date.parse(instant ?? "") - now) / 1000;
}

/**
 * Return for how many seconds the owner has held a partition, or did until its lease expired; null if it has no owner, or
 * its lease has no start time.
 */
export function secondsHeld(row: PartitionRow, now: number) {
  if (row.held_since === null) return null;
  const until = row.state === "expired" ? Date.parse(row.leased_until ?? "") : now;
  return Math.max(0, (until - Date.parse(row.held_since)) / 1000);
}

/** Return how long the longest lease is held, or “at least” that if another lease may be older. */
export function longestLeaseText(lease: OldestLease | null) {
  if (lease === null || lease.held_for === null) return "–";
  return `${lease.is_longest ? "" : "at least "}${duration(lease.held_for, { short: true })}`;
}

/** Return how long something has waited as text. */
export function waitText(seconds: number | null) {
  return seconds === null ? "–" : duration(seconds, { short: true });
}

/** Return a lag as text. A lag below one second is shown as 0. */
export function lagText(seconds: number | null) {
  if (seconds === null || seconds === undefined) return "–";
  return seconds < 1 ? "0 s" : duration(seconds, { short: seconds >= 36000 });
}

/**
 * Return the ages of half and of 95 percent of the records in a sink as text.
 *
 * @param sink in seconds
 */
export function freshnessText({
  freshness_p50: half,
  freshness_p95: most,
}: {
  freshness_p50: number | null;
  freshness_p95: number | null;
}) {
  if (half === null || most === null) return "–";
  return [half, most].map((seconds) => (seconds < 10 ? `${seconds.toFixed(1)} s` : duration(seconds))).join(" / ");
}

/**
 * The server's clock, from the times in its responses.
 *
 * A response is a moment old when it arrives. So a small difference is ignored, or all ages would jump.
 */
export class ServerClock {
  #offset: number | null = null;

  /** @param local returns the browser's time in milliseconds */
  constructor(private readonly local: () => number = Date.now) {}

  update(asOf: string) {
    const offset = Date.parse(asOf) - this.local();
    if (Number.isNaN(offset)) return;
    if (this.#offset === null || Math.abs(offset - this.#offset) > 2000) this.#offset = offset;
  }

  now() {
    return this.local() + (this.#offset ?? 0);
  }
}
