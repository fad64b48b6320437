/** Durations, ages and instants as a person reads them. */

import assert from "node:assert/strict";
import { test } from "node:test";

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
} from "../../airflow_provider_coordination/ui/static/time.js";

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
    assert.equal(duration(seconds), long);
    assert.equal(duration(seconds, { short: true }), short);
  });
}

test("an age says whether it lies behind or ahead", () => {
  assert.equal(relative("2026-01-31T11:59:20Z", NOW), "40 s ago");
  assert.equal(relative("2026-01-31T12:00:40Z", NOW), "in 40 s");
  assert.equal(relative("2026-01-31T12:00:00.400Z", NOW), "now");
  assert.equal(relative("2026-01-30T09:00:00Z", NOW), "1 d ago");
});

test("what is no instant has no age", () => {
  assert.equal(relative(null, NOW), "");
  assert.equal(formatInstant("soon", "UTC"), "");
});

test("the time until an instant is negative once it has passed", () => {
  assert.equal(secondsUntil("2026-01-31T12:00:40Z", NOW), 40);
  assert.equal(secondsUntil("2026-01-31T11:59:20Z", NOW), -40);
});

test("an instant is shown in the zone that was chosen", () => {
  assert.equal(formatInstant("2026-01-31T23:30:05Z", "Asia/Kolkata"), "2026-02-01 05:00:05");
  assert.equal(formatInstant("2026-07-01T00:00:00Z", "UTC"), "2026-07-01 00:00:00");
});

test("Airflow keeps the chosen zone as JSON", () => {
  assert.equal(chosenZone(stored('"Asia/Tokyo"')), "Asia/Tokyo");
});

test("without a zone that can be used, the browser's is taken", () => {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const value of [null, "null", "Asia/Tokyo", '"Nowhere/Atall"', '"', "{}"])
    assert.equal(chosenZone(stored(value)), own);
  assert.equal(chosenZone(undefined), own);
});

test("a zone's distance from UTC follows its summer time", () => {
  assert.equal(zoneOffset(Date.parse("2026-01-15T12:00:00Z"), "Europe/Berlin"), 3600000);
  assert.equal(zoneOffset(Date.parse("2026-07-15T12:00:00Z"), "Europe/Berlin"), 7200000);
});

test("no lag is not the same as a lag that nobody knows", () => {
  assert.equal(lagText(null), "–");
  assert.equal(lagText(0.3), "0 s");
  assert.equal(lagText(75), "1 min 15 s");
  assert.equal(lagText(90000), "1 d");
});

test("a partition is held until now, or until its lease ran out", () => {
  const row = { held_since: "2026-01-31T11:00:00Z", leased_until: "2026-01-31T11:50:00Z" };
  assert.equal(secondsHeld({ ...row, state: "held" }, NOW), 3600);
  assert.equal(secondsHeld({ ...row, state: "expired" }, NOW), 3000);
  assert.equal(secondsHeld({ ...row, state: "held" }, NOW - 7200000), 0);
  assert.equal(secondsHeld({ ...row, held_since: null, state: "waiting" }, NOW), null);
});

test("a lease that may not be the longest is the least that the longest can be", () => {
  assert.equal(longestLeaseText({ held_for: 780, is_longest: true }), "13 min");
  assert.equal(longestLeaseText({ held_for: 24, is_longest: false }), "at least 24 s");
  assert.equal(longestLeaseText({ held_for: null, is_longest: false }), "–");
  assert.equal(longestLeaseText(null), "–");
});

test("ages follow the server's clock, even if the browser's is wrong", () => {
  let local = NOW - 3600000;
  const clock = new ServerClock(() => local);
  assert.equal(clock.now(), local);
  clock.update("2026-01-31T12:00:00Z");
  assert.equal(clock.now(), NOW);
  local += 5000;
  assert.equal(clock.now(), NOW + 5000);
});

test("an answer that was a moment on its way does not make all ages jump", () => {
  const clock = new ServerClock(() => NOW);
  clock.update("2026-01-31T12:00:00Z");
  clock.update("2026-01-31T11:59:59Z");
  assert.equal(clock.now(), NOW);
  clock.update("2026-01-31T12:01:00Z");
  assert.equal(clock.now(), NOW + 60000);
});

test("freshness has tenths of a second below ten", () => {
  assert.equal(freshnessText({ freshness_p50: 1.6, freshness_p95: 72 }), "1.6 s / 1 min 12 s");
  assert.equal(freshnessText({ freshness_p50: null, freshness_p95: null }), "–");
});
