/** The addresses of pages, of the API, and of Airflow's own pages. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  alarmTarget,
  loginPath,
  pathOf,
  readPlace,
  runApi,
  sourceApi,
  taskPath,
  withParameters,
} from "../../airflow_provider_coordination/ui/static/urls.js";

const ODD = ["a/b", "a b", 'say "hi"', "<b>&amp;</b>", "🛩️ flights", "100%", "a?b#c", "timeline", "ключ"];

for (const source of ODD) {
  test(`the address of a source called ${JSON.stringify(source)} says its name`, () => {
    const place = { connection: "my/connection", source, page: "shards" };
    assert.deepEqual(readPlace(pathOf(place)), place);
  });
}

test("an address without a source is the overview", () => {
  for (const path of [
    "/plugin/coordination",
    "/plugin/coordination/",
    "/somewhere/else",
    "/plugin/coordination-run/a/b",
  ]) {
    assert.equal(readPlace(path).source, null);
  }
});

test("a source's URL without a page shows its partitions", () => {
  assert.deepEqual(readPlace("/plugin/coordination/c/clicks"), {
    connection: "c",
    source: "clicks",
    page: "partitions",
  });
});

test("a source may have the name of a page", () => {
  assert.deepEqual(readPlace("/plugin/coordination/c/timeline"), {
    connection: "c",
    source: "timeline",
    page: "partitions",
  });
});

test("a source whose slashes a proxy has decoded keeps its name", () => {
  assert.deepEqual(readPlace("/plugin/coordination/c/a/b/workers"), {
    connection: "c",
    source: "a/b",
    page: "workers",
  });
});

test("an address that is no encoded text is taken as it is", () => {
  assert.equal(readPlace("/plugin/coordination/c/100%/partitions").source, "100%");
});

test("an address may lie below what a deployment puts in front", () => {
  assert.equal(readPlace("/airflow/plugin/coordination/c/clicks/workers").page, "workers");
});

test("changing a parameter leaves the others alone", () => {
  assert.equal(
    withParameters("?status=CLOSED&status=ASSIGNED&parked=true", { parked: null, search: "a b" }),
    "?status=CLOSED&status=ASSIGNED&search=a+b",
  );
});

test("a parameter may have several values, and none at all", () => {
  assert.equal(withParameters("?status=CLOSED", { status: ["A", "B"] }), "?status=A&status=B");
  assert.equal(withParameters("?status=CLOSED", { status: [] }), "");
});

const OWNER = {
  name: "x",
  dag_id: "my dag",
  run_id: "manual__2026-01-01T00:00:00+00:00",
  task_id: "group.ingest",
  map_index: -1,
  try_number: 2,
};

test("the link to a task instance names its try", () => {
  assert.equal(
    taskPath(OWNER),
    "/dags/my%20dag/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00/tasks/group.ingest?try_number=2",
  );
});

test("the link to a mapped task instance names its index", () => {
  assert.match(taskPath({ ...OWNER, map_index: 0 }), /\/tasks\/group\.ingest\/mapped\/0\?try_number=2$/);
});

test("an owner that is no task has no link", () => {
  assert.equal(taskPath({ name: "somebody" }), null);
  assert.equal(taskPath(null), null);
});

test("names in an address of the API are encoded", () => {
  assert.equal(sourceApi("a/b", "x?y", "shards"), "connections/a%2Fb/sources/x%3Fy/shards");
});

const RUN = { dagId: "my dag", runId: "manual__2026-01-01T00:00:00+00:00" };

for (const [what, route, rest] of [
  ["a run", RUN, ""],
  ["a task instance", { ...RUN, taskId: "group.ingest", mapIndex: undefined }, "&task_id=group.ingest"],
  ["a task instance that is not mapped", { ...RUN, taskId: "ingest", mapIndex: "-1" }, "&task_id=ingest"],
  ["one of a mapped task's", { ...RUN, taskId: "ingest", mapIndex: "0" }, "&task_id=ingest&map_index=0"],
]) {
  test(`the question for what ${what} holds names it`, () => {
    assert.equal(runApi(route), `runs?dag_id=my+dag&run_id=manual__2026-01-01T00%3A00%3A00%2B00%3A00${rest}`);
  });
}

test("logging in again leads back to the page with its filters", () => {
  const path = loginPath({ pathname: "/plugin/coordination/c/s", search: "?parked=true", hash: "" });
  assert.equal(new URLSearchParams(path.split("?")[1]).get("next"), "/plugin/coordination/c/s?parked=true");
});

for (const [about, path, search] of [
  ["parked", "partitions", "?parked=true"],
  ["expired", "partitions", "?expired=true"],
  ["failing", "partitions", "?failing=true"],
  ["waiting", "partitions", "?order=priority&status=UNASSIGNED"],
  ["overdue", "acknowledgments", ""],
  ["brand new", "partitions", ""],
]) {
  test(`an alarm about ${about} leads to ${path}${search}`, () => {
    const place = alarmTarget({ connection: "c", source: "a/b" }, about);
    assert.equal(place.pathname, `/plugin/coordination/c/a%2Fb/${path}`);
    const sorted = new URLSearchParams(place.search);
    sorted.sort();
    assert.equal(sorted.toString() && `?${sorted}`, search);
  });
}
