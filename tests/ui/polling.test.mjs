/** Asking again and again. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";

import { Problem } from "../../airflow_provider_coordination/ui/static/api.js";
import { Loop } from "../../airflow_provider_coordination/ui/static/polling.js";

const LATER = 60000;

/** A loop whose questions a test answers: each asked one waits in `asked`. */
function world() {
  const now = { asked: [], isSeen: true, isPaused: false, changes: 0 };
  now.loop = new Loop(
    (signal) =>
      new Promise((resolve, reject) => {
        now.asked.push({ signal, answer: resolve, fail: reject });
      }),
    {
      every: 2,
      isSeen: () => now.isSeen,
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

test("it is asked at once, and again after a while", async () => {
  const { loop, asked, answered } = world();
  void loop.refresh();
  assert.equal(asked.length, 1);
  await answered();
  assert.equal(asked.length, 1);
  mock.timers.tick(LATER);
  assert.equal(asked.length, 2);
});

test("while a question is under way none other is asked, and one that was wanted meanwhile follows it", async () => {
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
  await answered(new Problem("away", "no store"));
  assert.equal(loop.problem.kind, "away");
  assert.notEqual(loop.nextAt, null);
  mock.timers.tick(LATER);
  assert.equal(loop.nextAt, null);
  await answered();
  assert.equal(loop.problem, null);
});

test("what goes on failing is asked for ever more rarely", async () => {
  const { loop, asked, answered } = world();
  void loop.refresh();
  await answered(new Problem("away", "no store"));
  mock.timers.tick(2500);
  assert.equal(asked.length, 2);
  await answered(new Problem("away", "no store"));
  mock.timers.tick(2500);
  assert.equal(asked.length, 2);
});

test("a session that ended is not asked for again by itself, but when the page is looked at anew", async () => {
  const { loop, asked, answered } = world();
  void loop.refresh();
  await answered(new Problem("session", "over"));
  mock.timers.tick(LATER);
  assert.equal(asked.length, 1);
  loop.seen();
  assert.equal(asked.length, 2);
});

test("a page that nobody sees asks nothing, and goes on when it is seen", async () => {
  const now = world();
  void now.loop.refresh();
  await now.answered();
  now.isSeen = false;
  mock.timers.tick(LATER);
  assert.equal(now.asked.length, 1);
  now.isSeen = true;
  now.loop.nextAt = 0;
  now.loop.seen();
  assert.equal(now.asked.length, 2);
});

test("who pauses is asked nothing more for, and goes on at once", async () => {
  const now = world();
  void now.loop.refresh();
  await now.answered();
  now.isPaused = true;
  now.loop.paused();
  now.loop.seen();
  mock.timers.tick(LATER);
  assert.deepEqual([now.asked.length, now.loop.nextAt], [1, null]);
  now.isPaused = false;
  now.loop.paused();
  assert.equal(now.asked.length, 2);
});

test("what is stopped calls off its question, asks no more, and tells nothing", async () => {
  const now = world();
  void now.loop.refresh();
  now.loop.stop();
  assert.ok(now.asked[0].signal.aborted);
  const { changes } = now;
  await now.answered(new Problem("away", "no store"));
  void now.loop.refresh();
  mock.timers.tick(LATER);
  assert.deepEqual([now.asked.length, now.changes, now.loop.problem], [1, changes, null]);
});
