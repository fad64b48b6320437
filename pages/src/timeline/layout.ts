/** The layout of the timeline: instants as pixels, the ticks of its axis, and the bars of each partition. */

import type { HoldingFacts } from "../api/schema";
import { zoneOffset } from "../format/time";
import type { Bar } from "../types";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  10 * SECOND,
  30 * SECOND,
  MINUTE,
  2 * MINUTE,
  5 * MINUTE,
  10 * MINUTE,
  15 * MINUTE,
  30 * MINUTE,
  HOUR,
  2 * HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
  DAY,
  2 * DAY,
  7 * DAY,
];
const THINNEST = 3;

/** The time ranges that can be chosen, by their names in the URL, in seconds. */
export const WINDOWS = { "15m": 900, "1h": 3600, "6h": 21600, "1d": 86400, "7d": 604800 } as Record<string, number>;
export const OWNER_PALETTES = [
  "blue",
  "teal",
  "purple",
  "pink",
  "cyan",
  "indigo",
  "emerald",
  "fuchsia",
  "sky",
  "violet",
];

/**
 * Return the window of a URL.
 *
 * @param parameters `window`, a length, and `until`, an instant; without it the window ends now
 */
export function windowOf(parameters: URLSearchParams, now: number) {
  const asked = parameters.get("window");
  const name = asked !== null && Object.hasOwn(WINDOWS, asked) ? asked : "1h";
  const until = Date.parse(parameters.get("until") ?? "");
  const end = Number.isNaN(until) ? now : Math.min(until, now);
  return { name, since: end - WINDOWS[name] * SECOND, until: end, isLive: Number.isNaN(until) || until >= now };
}

/** Return the function that converts an instant to a position in pixels. */
function scaleOf(since: number, until: number, width: number) {
  return (instant: number) => ((instant - since) / (until - since)) * width;
}

/** Return the ticks of the axis, at round times in the time zone. */
export function ticksOf(
  since: number,
  until: number,
  width: number,
  zone: string,
  apart = 90,
): { at: number; x: number; text: string }[] {
  const minimum = ((until - since) / Math.max(width, 1)) * apart;
  const step = STEPS.find((each) => each >= minimum) ?? STEPS[STEPS.length - 1];
  const scale = scaleOf(since, until, width);

  const ticks: { at: number; x: number; text: string }[] = [];
  let before = null;
  for (let at = nextWhole(since, step, zone); at <= until; at = nextWhole(at + 1, step, zone)) {
    const there = new Date(at + zoneOffset(at, zone)).toISOString();
    const day = there.slice(5, 10);
    const clock = step < MINUTE ? there.slice(11, 19) : there.slice(11, 16);
    ticks.push({ at, x: scale(at), text: step >= DAY || (before !== null && before !== day) ? day : clock });
    before = day;
  }
  return ticks;
}

function nextWhole(at: number, step: number, zone: string) {
  const offset = zoneOffset(at, zone);
  return Math.ceil((at + offset) / step) * step - offset;
}

/** Return the palette of an owner, which is always the same. */
export function ownerPalette(name: string) {
  let hash = 2166136261;
  for (const character of name) hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 16777619) >>> 0;
  return OWNER_PALETTES[hash % OWNER_PALETTES.length];
}

/**
 * Return the bars of a partition in the window.
 *
 * @param holdings from the API
 * @returns by their begin
 */
export function barsOf(
  holdings: HoldingFacts[],
  { since, until, now, width }: { since: number; until: number; now: number; width: number },
): Bar[] {
  const scale = scaleOf(since, until, width);

  const bars: Bar[] = [];
  for (const holding of holdings) {
    const began = holding.began_at === null ? -Infinity : Date.parse(holding.began_at);
    const ended = holding.ended_at === null ? Math.max(now, until) : Date.parse(holding.ended_at);
    if (ended < since || began > until) continue;
    const from = scale(Math.max(began, since));
    const size = Math.max(THINNEST, scale(Math.min(ended, until)) - from);
    const x = Math.min(from, width - size);
    bars.push({ holding, x, width: size, startsBefore: began < since, endsAfter: ended > until });
  }
  return bars.sort((a, b) => a.x - b.x);
}

/** Return whether the end of a holding is a problem. */
export function isProblem(end: string) {
  return end === "failed" || end === "expired" || end === "taken over" || end === "parked";
}
