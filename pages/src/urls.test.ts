/** The addresses of pages, of the API, and of Airflow's own pages. */

import { expect, test } from "vitest";

import { alarmTarget, loginPath, pathOf, readPlace, runApi, sourceApi, taskPath, withParameters } from "./urls";

const ODD = ["a/b", "a b", 'say "hi"', "<b>&amp;</b>", "🛩️ flights", "100%", "a?b#c", "timeline", "ключ"];

for (const source of ODD) {
  test(`the address of a source called ${JSON.stringify(source)} says its name`, () => {
    const place = { connection: "my/connection", source, page: "shards" };
    expect(readPlace(pathOf(place))).toEqual(place);
  });
}

test("an address without a source is the overview", () => {
  for (const path of [
    "/plugin/coordination",
    "/plugin/coordination/",
    "/somewhere/else",
    "/plugin/coordination-run/a/b",
  ]) {
    expect(readPlace(path).source).toBe(null);
  }
});

test("a source's URL without a page shows its partitions", () => {
  expect(readPlace("/plugin/coordination/c/clicks")).toEqual({
    connection: "c",
    source: "clicks",
    page: "partitions",
  });
});

test("a source may have the name of a page", () => {
  expect(readPlace("/plugin/coordination/c/timeline")).toEqual({
    connection: "c",
    source: "timeline",
    page: "partitions",
  });
});

test("a source whose slashes a proxy has decoded keeps its name", () => {
  expect(readPlace("/plugin/coordination/c/a/b/workers")).toEqual({
    connection: "c",
    source: "a/b",
    page: "workers",
  });
});

test("an address that is no encoded text is taken as it is", () => {
  expect(readPlace("/plugin/coordination/c/100%/partitions").source).toBe("100%");
});

test("an address may lie below what a deployment puts in front", () => {
  expect(readPlace("/airflow/plugin/coordination/c/clicks/workers").page).toBe("workers");
});

test("changing a parameter leaves the others alone", () => {
  expect(withParameters("?status=CLOSED&status=ASSIGNED&parked=true", { parked: null, search: "a b" })).toBe(
    "?status=CLOSED&status=ASSIGNED&search=a+b",
  );
});

test("a parameter may have several values, and none at all", () => {
  expect(withParameters("?status=CLOSED", { status: ["A", "B"] })).toBe("?status=A&status=B");
  expect(withParameters("?status=CLOSED", { status: [] })).toBe("");
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
  expect(taskPath(OWNER)).toBe(
    "/dags/my%20dag/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00/tasks/group.ingest?try_number=2",
  );
});

test("the link to a mapped task instance names its index", () => {
  expect(taskPath({ ...OWNER, map_index: 0 })).toMatch(/\/tasks\/group\.ingest\/mapped\/0\?try_number=2$/);
});

test("an owner that is no task has no link", () => {
  expect(taskPath({ name: "somebody" })).toBe(null);
  expect(taskPath(null)).toBe(null);
});

test("names in an address of the API are encoded", () => {
  expect(sourceApi("a/b", "x?y", "shards")).toBe("connections/a%2Fb/sources/x%3Fy/shards");
});

const RUN = { dagId: "my dag", runId: "manual__2026-01-01T00:00:00+00:00" };

for (const [what, route, rest] of [
  ["a run", RUN, ""],
  ["a task instance", { ...RUN, taskId: "group.ingest", mapIndex: undefined }, "&task_id=group.ingest"],
  ["a task instance that is not mapped", { ...RUN, taskId: "ingest", mapIndex: "-1" }, "&task_id=ingest"],
  ["one of a mapped task's", { ...RUN, taskId: "ingest", mapIndex: "0" }, "&task_id=ingest&map_index=0"],
]) {
  test(`the question for what ${what} holds names it`, () => {
    expect(runApi(route)).toBe(`runs?dag_id=my+dag&run_id=manual__2026-01-01T00%3A00%3A00%2B00%3A00${rest}`);
  });
}

test("logging in again leads back to the page with its filters", () => {
  const path = loginPath({ pathname: "/plugin/coordination/c/s", search: "?parked=true", hash: "" });
  expect(new URLSearchParams(path.split("?")[1]).get("next")).toBe("/plugin/coordination/c/s?parked=true");
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
    expect(place.pathname).toBe(`/plugin/coordination/c/a%2Fb/${path}`);
    const sorted = new URLSearchParams(place.search);
    sorted.sort();
    expect(sorted.toString() && `?${sorted}`).toBe(search);
  });
}
