/**
 * The URLs of these pages, of the API, and of pages of Airflow that are linked.
 *
 * The URL of a page contains its whole state: `/plugin/coordination/<connection>/<source>/<page>?filters`. Names come from
 * the store and may contain anything, so each is encoded as one segment.
 */

import type { Alarm, Owner } from "./api/schema";
import type { Parameter, Place } from "./types";

export const ROUTE = "/plugin/coordination";

/** The pages of a source. Each entry gets a tab and a URL; only some sources have pages with `isOptional`. */
export const PAGES = [
  { name: "partitions", title: "Partitions" },
  { name: "shards", title: "Shards", isOptional: true },
  { name: "timeline", title: "Timeline" },
  { name: "calendar", title: "Calendar", isOptional: true },
  { name: "acknowledgments", title: "Acknowledgments" },
  { name: "workers", title: "Workers" },
  { name: "supervisor", title: "Supervisor", isOptional: true },
];

const NAMES = new Set(PAGES.map((page) => page.name));

/** Return a decoded segment of a path; unchanged if it is not encoded. */
function decoded(segment: string) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/**
 * Return the page of a path: the overview if it names no source.
 *
 * A proxy may have decoded the slashes of a source's name, so whatever lies between connection and page is the name.
 *
 * @param pathname of the browser's URL
 */
export function readPlace(pathname: string): { connection: string | null; source: string | null; page: string | null } {
  // A deployment may add a prefix. The URL of a tab continues after the route, as in `coordination-run`.
  const at = `${pathname}/`.indexOf(`${ROUTE}/`);
  const rest = at < 0 ? "" : pathname.slice(at + ROUTE.length);
  const [connection, ...names] = rest.split("/").filter((segment) => segment !== "");
  if (connection === undefined || names.length === 0) {
    return { connection: connection === undefined ? null : decoded(connection), source: null, page: null };
  }
  const last = names[names.length - 1];
  const page = names.length > 1 && NAMES.has(last) ? String(names.pop()) : "partitions";
  return { connection: decoded(connection), source: names.map(decoded).join("/"), page };
}

/** Return the path of a page of a source, or of the overview. */
export function pathOf({
  connection,
  source,
  page,
}: { connection?: string | null; source?: string | null; page?: string | null } = {}) {
  if (!connection || !source) return ROUTE;
  return `${ROUTE}/${encodeURIComponent(connection)}/${encodeURIComponent(source)}/${page ?? "partitions"}`;
}

/**
 * Return the query of a URL with some parameters changed.
 *
 * @param search as it is, with or without `?`
 * @param changes null, false and "" remove a parameter
 */
export function withParameters(search: string, changes: Record<string, Parameter>) {
  const parameters = new URLSearchParams(search);
  for (const [name, value] of Object.entries(changes)) {
    parameters.delete(name);
    if (Array.isArray(value)) value.forEach((each) => parameters.append(name, each));
    else if (value === true) parameters.set(name, "true");
    else if (value !== null && value !== undefined && value !== false && value !== "") parameters.set(name, value);
  }
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}

/** The page that shows the subject of each kind of alarm, and the filters for it. */
const ALARM_TARGETS: Record<Alarm["about"], [string, Record<string, Parameter>]> = {
  lost: ["partitions", { parked: true }],
  parked: ["partitions", { parked: true }],
  expired: ["partitions", { expired: true }],
  failing: ["partitions", { failing: true }],
  waiting: ["partitions", { status: ["UNASSIGNED"], order: "priority" }],
  lag: ["partitions", { status: ["ASSIGNED", "UNASSIGNED"], order: "lag", descending: true }],
  overdue: ["acknowledgments", {}],
  suspended: ["partitions", {}],
  supervisor: ["supervisor", {}],
  sink: ["acknowledgments", {}],
  freshness: ["acknowledgments", {}],
};

/** Return the page and filters that show the subject of an alarm. */
export function alarmTarget(
  place: { connection: string; source: string },
  about: Alarm["about"],
): { pathname: string; search: string } {
  const [page, filters] = ALARM_TARGETS[about] ?? ["partitions", {}];
  return { pathname: pathOf({ ...place, page }), search: withParameters("", filters) };
}

/** Return the supervisor's page with the origin of a batch. */
export function originTarget(place: Place, batch: string) {
  return { pathname: pathOf({ ...place, page: "supervisor" }), search: withParameters("", { batch }) };
}

/** Return the path of Airflow's page of the owner's task try, which shows its log; null if the owner is not a task. */
export function taskPath(owner: Owner | null) {
  if (!owner?.dag_id || !owner.run_id || !owner.task_id) return null;
  const [dag, run, task] = [owner.dag_id, owner.run_id, owner.task_id].map(encodeURIComponent);
  const mapped = (owner.map_index ?? -1) >= 0 ? `/mapped/${owner.map_index}` : "";
  const tried = owner.try_number ? `?try_number=${owner.try_number}` : "";
  return `/dags/${dag}/runs/${run}/tasks/${task}${mapped}${tried}`;
}

/** Return the path of Airflow's page of a DAG. */
export function dagPath(dagId: string) {
  return `/dags/${encodeURIComponent(dagId)}`;
}

/** Return the path of the API for something of a source. */
export function sourceApi(connection: string, source: string, rest: string) {
  return `connections/${encodeURIComponent(connection)}/sources/${encodeURIComponent(source)}/${rest}`;
}

/**
 * Return the path of the API for the partitions that a run, or one of its task instances, holds or held.
 *
 * @param route the names in Airflow's URL; without an
 *     index for a task that is not mapped
 */
export function runApi({
  dagId,
  runId,
  taskId,
  mapIndex,
}: {
  dagId: string;
  runId: string;
  taskId?: string;
  mapIndex?: string;
}) {
  const asked = new URLSearchParams({ dag_id: dagId, run_id: runId });
  if (taskId) asked.set("task_id", taskId);
  if (taskId && mapIndex !== undefined && mapIndex !== "-1") asked.set("map_index", mapIndex);
  return `runs?${asked}`;
}

/** Return the path of the login page, which leads back to this page. */
export function loginPath(location: { pathname: string; search: string; hash: string }) {
  const next = `${location.pathname}${location.search}${location.hash}`;
  return `api/v2/auth/login?${new URLSearchParams({ next })}`;
}
