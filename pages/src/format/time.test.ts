/** Durations, ages and instants as a person reads them. */

import { expect, test } from "vitest";

import {
  chosenZone,
  duration,
  formatInstant,
  freshnessText,
  lagText,
  longestLeaseText,
  relative,
  secondsHeld,
  secondsUntil,
  ServerClock,
  zoneOffset,
} from "./time";

const NOW = Date.parse("2026-01-31T12:00:00Z");
const stored = (value) => ({ getItem: () => value });

for (const [seconds, long, short] of [
  [0, "0 s", "0 s"],
  [0.4, "0 s", "0 s"],
  [59.6, "1 min", "1 min"],
  [125, "2 min 5 s", "2 min"],
  [3600, "1 h", "1 h"],
  [3661, "1 h 1 min", "1 h"],
  [3601, "1 h", "1 h"],
  [93784, "1 d 2 h", "1 d"],
  [-42, "42 s", "42 s"],
]) {
  test(`${seconds} seconds are ${long}, in short ${short}`, () => {
    expect(duration(seconds)).toBe(long);
    expect(duration(seconds, { short: true })).toBe(short);
  });
}

test("an age says whether it lies behind or ahead", () => {
  expect(relative("2026-01-31T11:59:20Z", NOW)).toBe("40 s ago");
  expect(relative("2026-01-31T12:00:40Z", NOW)).toBe("in 40 s");
  expect(relative("2026-01-31T12:00:00.400Z", NOW)).toBe("now");
  expect(relative("2026-01-30T09:00:00Z", NOW)).toBe("1 d ago");
});

test("what is no instant has no age", () => {
  expect(relative(null, NOW)).toBe("");
  expect(formatInstant("soon", "UTC")).toBe("");
});

test("the time until an instant is negative once it has passed", () => {
  expect(secondsUntil("2026-01-31T12:00:40Z", NOW)).toBe(40);
  expect(secondsUntil("2026-01-31T11:59:20Z", NOW)).toBe(-40);
});

test("an instant is shown in the zone that was chosen", () => {
  expect(formatInstant("2026-01-31T23:30:05Z", "Asia/Kolkata")).toBe("2026-02-01 05:00:05");
  expect(formatInstant("2026-07-01T00:00:00Z", "UTC")).toBe("2026-07-01 00:00:00");
});

test("Airflow keeps the chosen zone as JSON", () => {
  expect(chosenZone(stored('"Asia/Tokyo"'))).toBe("Asia/Tokyo");
});

test("without a zone that can be used, the browser's is taken", () => {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const value of [null, "null", "Asia/Tokyo", '"Nowhere/Atall"', '"', "{}"])
    expect(chosenZone(stored(value))).toBe(own);
  expect(chosenZone(undefined)).toBe(own);
});

test("a zone's distance from UTC follows its summer time", () => {
  expect(zoneOffset(Date.parse("2026-01-15T12:00:00Z"), "Europe/Berlin")).toBe(3600000);
  expect(zoneOffset(Date.parse("2026-07-15T12:00:00Z"), "Europe/Berlin")).toBe(7200000);
});

test("no lag is not the same as a lag that nobody knows", () => {
  expect(lagText(null)).toBe("–");
  expect(lagText(0.3)).toBe("0 s");
  expect(lagText(75)).toBe("1 min 15 s");
  expect(lagText(90000)).toBe("1 d");
});

test("a partition is held until now, or until its lease ran out", () => {
  const row = { held_since: "2026-01-31T11:00:00Z", leased_until: "2026-01-31T11:50:00Z" };
  expect(secondsHeld({ ...row, state: "held" }, NOW)).toBe(3600);
  expect(secondsHeld({ ...row, state: "expired" }, NOW)).toBe(3000);
  expect(secondsHeld({ ...row, state: "held" }, NOW - 7200000)).toBe(0);
  expect(secondsHeld({ ...row, held_since: null, state: "waiting" }, NOW)).toBe(null);
});

test("a lease that may not be the longest is the least that the longest can be", () => {
  expect(longestLeaseText({ held_for: 780, is_longest: true })).toBe("13 min");
  expect(longestLeaseText({ held_for: 24, is_longest: false })).toBe("at least 24 s");
  expect(longestLeaseText({ held_for: null, is_longest: false })).toBe("–");
  expect(longestLeaseText(null)).toBe("–");
});

test("ages follow the server's clock, even if the browser's is wrong", () => {
  let local = NOW - 3600000;
  const clock = new ServerClock(() => local);
  expect(clock.now()).toBe(local);
  clock.update("2026-01-31T12:00:00Z");
  expect(clock.now()).toBe(NOW);
  local += 5000;
  expect(clock.now()).toBe(NOW + 5000);
});

test("an answer that was a moment on its way does not make all ages jump", () => {
  const clock = new ServerClock(() => NOW);
  clock.update("2026-01-31T12:00:00Z");
  clock.update("2026-01-31T11:59:59Z");
  expect(clock.now()).toBe(NOW);
  clock.update("2026-01-31T12:01:00Z");
  expect(clock.now()).toBe(NOW + 60000);
});

test("freshness has tenths of a second below ten", () => {
  expect(freshnessText({ freshness_p50: 1.6, freshness_p95: 72 })).toBe("1.6 s / 1 min 12 s");
  expect(freshnessText({ freshness_p50: null, freshness_p95: null })).toBe("–");
});
