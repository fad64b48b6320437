/** How an action on many partitions is split into requests, and which versions it names. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  requestGroups,
  laterVersion,
  setVersionToSend,
  versionToSend,
} from "../../airflow_provider_coordination/ui/static/action_requests.js";

const many = (count, key) =>
  Array.from({ length: count }, (_, at) => ({ key: `${key}${at}`, version: 1767268800000000 }));
/** As Python's json.dumps writes it. */
const written = (value) =>
  JSON.stringify(value)
    .replace(/[^\0-\x7f]/g, () => "\\uXXXX")
    .replace(/,/g, ", ")
    .replace(/:/g, ": ");

test("an action on a few partitions is one request", () => {
  assert.deepEqual(requestGroups(many(3, "a")), [many(3, "a")]);
  assert.deepEqual(requestGroups([]), []);
});

for (const [what, key] of [
  ["short", "a"],
  ["long", "k".repeat(1000)],
  ["of emoji", "🛩️".repeat(140)],
]) {
  test(`an action on thousands of partitions with keys that are ${what} fits into requests, each once`, () => {
    const asked = many(2000, key);
    const groups = requestGroups(asked);
    assert.deepEqual(groups.flat(), asked);
    for (const group of groups) {
      assert.ok(group.length > 0 && group.length <= 500);
      assert.ok(written({ partitions: group, reason: "r".repeat(500) }).length <= 48000);
    }
  });
}

const SEEN = { partition_key: "a", version: 7, status: "ASSIGNED", owner: { name: "one" } };

test("a lease that was renewed since is the one that the user saw", () => {
  assert.equal(versionToSend({ ...SEEN, version: 9 }, SEEN), 9);
});

test("a lease that another owner has now is not the one that was seen, nor is another status", () => {
  assert.equal(versionToSend({ ...SEEN, version: 9, owner: { name: "two" } }, SEEN), 7);
  assert.equal(versionToSend({ ...SEEN, version: 9, status: "CLOSED", owner: null }, SEEN), 7);
});

test("of two sights of a partition the later one counts, and one may be missing", () => {
  const later = { ...SEEN, version: 9 };
  assert.equal(laterVersion(SEEN, later), later);
  assert.equal(laterVersion(later, SEEN), later);
  assert.equal(laterVersion(SEEN, undefined), SEEN);
});

const SET = { version: 3, state: "PENDING", references: { check: 1, sink: 2 } };

test("an acknowledgment set that only made progress is the one that was seen", () => {
  assert.equal(setVersionToSend({ ...SET, version: 5, references: { sink: 2, check: 1 } }, SET), 5);
});

test("an acknowledgment set that was released or has ended is not the one that was seen", () => {
  assert.equal(setVersionToSend({ ...SET, version: 5, references: { check: 0, sink: 2 } }, SET), 3);
  assert.equal(setVersionToSend({ ...SET, version: 5, state: "REJECTED" }, SET), 3);
  assert.equal(setVersionToSend(null, SET), 3);
});
