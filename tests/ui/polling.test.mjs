/** Repeated requests. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";

import { Problem } from "../../airflow_provider_coordination/ui/static/api.js";
import { Loop } from "../../airflow_provider_coordination/ui/static/polling.js";

const LATER = 60000;

/** A loop whose requests a test answers: each one waits in `asked`. */
function world() {
  const now = { asked: [], isVisible: true, isPaused: false, changes: 0 };
  now.loop = new Loop(
    (signal) =>
      new Promise((resolve, reject) => {
        now.asked.push({ signal, answer: resolve, fail: reject });
      }),
    {
      every: 2,
      isVisible: () => now.isVisible,
      isPaused: () => now.isPaused,
      onChange: () => (now.changes += 1),
    },
  );
  now.answered = async (problem) => {
    const last = now.asked[now.asked.length - 1];
    if (problem === undefined) last.answer();
    else last.fail(problem);
    await new Promise(setImmediate);
  };
  return now;
}

beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
afterEach(() => mock.timers.reset());

test("a request is sent at once, and again after a while", async () => {
  const { loop, asked, answered } = world();
  void loop.refresh();
  assert.equal(asked.length, 1);
  await answered();
  assert.equal(asked.length, 1);
  mock.timers.tick(LATER);
  assert.equal(asked.length, 2);
});

test("while a request is running no other is sent, and one that was requested during that time follows it", async () => {
  const { loop, asked, answered } = world();
  void loop.refresh();
  void loop.refresh();
  void loop.refresh();
  assert.equal(asked.length, 1);
  await answered();
  assert.equal(asked.length, 2);
  await answered();
  assert.equal(asked.length, 2);
});

test("a problem is kept until an answer comes", async () => {
  const { loop, answered } = world();
  void loop.refresh();
  await answered(new Problem("unavailable", "no store"));
  assert.equal(loop.problem.kind, "unavailable");
  assert.notEqual(loop.nextAt, null);
  mock.timers.tick(LATER);
  assert.equal(loop.nextAt, null);
  await answered();
  assert.equal(loop.problem, null);
});

test("repeated failures are retried less and less often", async () => {
  const { loop, asked, answered } = world();
  void loop.refresh();
  await answered(new Problem("unavailable", "no store"));
  mock.timers.tick(2500);
  assert.equal(asked.length, 2);
  await answered(new Problem("unavailable", "no store"));
  mock.timers.tick(2500);
  assert.equal(asked.length, 2);
});

test("an ended session is not retried automatically, but when the page becomes visible again", async () => {
  const { loop, asked, answered } = world();
  void loop.refresh();
  await answered(new Problem("session", "over"));
  mock.timers.tick(LATER);
  assert.equal(asked.length, 1);
  loop.onVisible();
  assert.equal(asked.length, 2);
});

test("a hidden page sends no requests, and continues when it is visible", async () => {
  const now = world();
  void now.loop.refresh();
  await now.answered();
  now.isVisible = false;
  mock.timers.tick(LATER);
  assert.equal(now.asked.length, 1);
  now.isVisible = true;
  now.loop.nextAt = 0;
  now.loop.onVisible();
  assert.equal(now.asked.length, 2);
});

test("a pause stops the requests, and resuming continues at once", async () => {
  const now = world();
  void now.loop.refresh();
  await now.answered();
  now.isPaused = true;
  now.loop.onPauseChange();
  now.loop.onVisible();
  mock.timers.tick(LATER);
  assert.deepEqual([now.asked.length, now.loop.nextAt], [1, null]);
  now.isPaused = false;
  now.loop.onPauseChange();
  assert.equal(now.asked.length, 2);
});

test("a stopped loop cancels its request, sends no more, and reports nothing", async () => {
  const now = world();
  void now.loop.refresh();
  now.loop.stop();
  assert.ok(now.asked[0].signal.aborted);
  const { changes } = now;
  await now.answered(new Problem("unavailable", "no store"));
  void now.loop.refresh();
  mock.timers.tick(LATER);
  assert.deepEqual([now.asked.length, now.changes, now.loop.problem], [1, changes, null]);
});
