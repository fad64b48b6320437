/** The timeline as a picture. */

import { expect, test } from "vitest";

import { barsOf, isProblem, ownerPalette, OWNER_PALETTES, ticksOf, windowOf } from "./layout";

const NOW = Date.parse("2026-01-31T12:00:00Z");
const HOUR = 3600000;
const at = (minutes) => new Date(NOW - HOUR + minutes * 60000).toISOString();
const SPAN = { since: NOW - HOUR, until: NOW, now: NOW, width: 600 };
const held = (began, ended, end = "released") => ({
  began_at: began === null ? null : at(began),
  ended_at: ended === null ? null : at(ended),
  end,
});
const barOf = (holding) => barsOf([holding], SPAN)[0];

test("a window without a word in the address is the last hour", () => {
  expect(windowOf(new URLSearchParams(), NOW)).toEqual({ name: "1h", since: NOW - HOUR, until: NOW, isLive: true });
});

test("the address says how long a window is, and when it ends", () => {
  const window = windowOf(new URLSearchParams({ window: "15m", until: "2026-01-31T10:00:00Z" }), NOW);
  expect([window.until, window.since, window.isLive]).toEqual([NOW - 2 * HOUR, NOW - 2 * HOUR - 900000, false]);
});

test("a window that the address does not name rightly is the last hour, and never ends ahead", () => {
  for (const name of ["constructor", "2y", ""])
    expect(windowOf(new URLSearchParams({ window: name }), NOW).name).toBe("1h");
  expect(windowOf(new URLSearchParams({ until: "2027-01-01T00:00:00Z" }), NOW).until).toBe(NOW);
});

test("a bar reaches from when it began to when it ended", () => {
  const bar = barOf(held(15, 30));
  expect([bar.x, bar.width, bar.startsBefore, bar.endsAfter]).toEqual([150, 150, false, false]);
});

test("what is still held reaches to now", () => {
  const bar = barOf(held(30, null));
  expect([bar.x, bar.width]).toEqual([300, 300]);
});

test("what began before the window, or at a time that is forgotten, begins at its edge", () => {
  for (const began of [-30, null]) {
    const bar = barOf(held(began, 30));
    expect([bar.x, bar.width, bar.startsBefore]).toEqual([0, 300, true]);
  }
});

test("what lies outside of the window is not drawn", () => {
  expect(barsOf([held(-30, -10), held(70, 80)], SPAN)).toEqual([]);
});

test("the shortest lease can be seen, also at the right edge", () => {
  const bar = barOf(held(60, null));
  expect(bar.width >= 3 && bar.x + bar.width <= 600).toBe(true);
});

test("bars follow each other in time", () => {
  expect(barsOf([held(30, 40), held(0, 10)], SPAN).map((bar) => bar.x)).toEqual([0, 300]);
});

test("ticks are at whole times of the zone, and not too close", () => {
  const ticks = ticksOf(NOW - HOUR, NOW, 600, "Asia/Kolkata");
  expect(ticks.map((tick) => tick.text)).toEqual(["16:30", "16:40", "16:50", "17:00", "17:10", "17:20", "17:30"]);
  expect(ticks[1].x - ticks[0].x).toBe(100);
});

test("a tick after midnight says the day", () => {
  const midnight = Date.parse("2026-02-01T00:00:00Z");
  expect(ticksOf(midnight - HOUR, midnight + HOUR, 400, "UTC").map((tick) => tick.text)).toEqual([
    "23:00",
    "23:30",
    "02-01",
    "00:30",
    "01:00",
  ]);
});

test("an owner has the same colour wherever it is drawn, and owners have many", () => {
  expect(ownerPalette("a:b")).toBe(ownerPalette("a:b"));
  const found = new Set(Array.from({ length: 200 }, (_, each) => ownerPalette(`host:dag:run:task:-1:1:${each}`)));
  expect(found.size).toBe(OWNER_PALETTES.length);
});

test("ends that are problems are distinguished", () => {
  expect(["failed", "expired", "taken over", "parked"].every(isProblem)).toBe(true);
  expect(!["released", "completed", "held", "handed over"].some(isProblem)).toBe(true);
});

test("an hour of the zone begins where its clock says so, also half an hour off", () => {
  const ticks = ticksOf(NOW - 6 * HOUR, NOW, 600, "Asia/Kolkata");
  expect(ticks.map((tick) => tick.text)).toEqual(["12:00", "13:00", "14:00", "15:00", "16:00", "17:00"]);
});
