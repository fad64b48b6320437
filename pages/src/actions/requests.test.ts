/** How an action on many partitions is split into requests, and which versions it names. */

import { expect, test } from "vitest";

import { requestGroups, laterVersion, setVersionToSend, versionToSend } from "./requests";

const many = (count, key) =>
  Array.from({ length: count }, (_, at) => ({ key: `${key}${at}`, version: 1767268800000000 }));
/** As Python's json.dumps writes it. */
const written = (value) =>
  JSON.stringify(value)
    .replace(/[^\0-\x7f]/g, () => "\\uXXXX")
    .replace(/,/g, ", ")
    .replace(/:/g, ": ");

test("an action on a few partitions is one request", () => {
  expect(requestGroups(many(3, "a"))).toEqual([many(3, "a")]);
  expect(requestGroups([])).toEqual([]);
});

for (const [what, key] of [
  ["short", "a"],
  ["long", "k".repeat(1000)],
  ["of emoji", "🛩️".repeat(140)],
]) {
  test(`an action on thousands of partitions with keys that are ${what} fits into requests, each once`, () => {
    const asked = many(2000, key);
    const groups = requestGroups(asked);
    expect(groups.flat()).toEqual(asked);
    for (const group of groups) {
      expect(group.length > 0 && group.length <= 500).toBe(true);
      expect(written({ partitions: group, reason: "r".repeat(500) }).length <= 48000).toBe(true);
    }
  });
}

const SEEN = { partition_key: "a", version: 7, status: "ASSIGNED", owner: { name: "one" } };

test("a lease that was renewed since is the one that the user saw", () => {
  expect(versionToSend({ ...SEEN, version: 9 }, SEEN)).toBe(9);
});

test("a lease that another owner has now is not the one that was seen, nor is another status", () => {
  expect(versionToSend({ ...SEEN, version: 9, owner: { name: "two" } }, SEEN)).toBe(7);
  expect(versionToSend({ ...SEEN, version: 9, status: "CLOSED", owner: null }, SEEN)).toBe(7);
});

test("of two sights of a partition the later one counts, and one may be missing", () => {
  const later = { ...SEEN, version: 9 };
  expect(laterVersion(SEEN, later)).toBe(later);
  expect(laterVersion(later, SEEN)).toBe(later);
  expect(laterVersion(SEEN, undefined)).toBe(SEEN);
});

const SET = { version: 3, state: "PENDING", references: { check: 1, sink: 2 } };

test("an acknowledgment set that only made progress is the one that was seen", () => {
  expect(setVersionToSend({ ...SET, version: 5, references: { sink: 2, check: 1 } }, SET)).toBe(5);
});

test("an acknowledgment set that was released or has ended is not the one that was seen", () => {
  expect(setVersionToSend({ ...SET, version: 5, references: { check: 0, sink: 2 } }, SET)).toBe(3);
  expect(setVersionToSend({ ...SET, version: 5, state: "REJECTED" }, SET)).toBe(3);
  expect(setVersionToSend(null, SET)).toBe(3);
});
