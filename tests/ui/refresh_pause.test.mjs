/** When the API is asked again. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { secondsToNext } from "../../airflow_provider_coordination/ui/static/refresh_pause.js";

const next = (problem, failures = 1, chance = 0.5) => secondsToNext({ problem, failures, chance });

test("while all is well it is every two seconds, and many tabs do not ask at once", () => {
  assert.equal(next(null, 0), 2);
  assert.ok(next(null, 0, 0) < 2 && next(null, 0, 1) > 2);
});

test("a store that is away is asked ever more rarely, and always again", () => {
  assert.deepEqual(
    [1, 2, 3, 4, 5, 50].map((failures) => next("away", failures)),
    [2, 4, 8, 16, 30, 30],
  );
});

test("what a person has to put right is asked for rarely, and a session that ended not at all", () => {
  assert.equal(next("forbidden"), 30);
  assert.equal(next("missing"), 30);
  assert.equal(next("session"), null);
});
