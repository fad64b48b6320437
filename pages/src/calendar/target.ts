/** Where a cell of the calendar leads. */

import type { SourceCard } from "../api/schema";
import type { Place } from "../types";
import { pathOf, taskPath, withParameters } from "../urls";
import { isStuck, type Cell } from "./cells";

/** A path and a query of these pages or of Airflow. */
export type Target = { pathname: string; search: string };

/** Return where a cell leads: to the partitions of its run, to what holds it, or to the task that reports it. */
export function targetOf(cell: Cell, place: Place, card: SourceCard | null): Target | null {
  const run =
    cell.runs.find((each) => each.state === cell.state) ?? (cell.held.length === 0 ? cell.runs[0] : undefined);
  if (run !== undefined) {
    return { pathname: pathOf({ ...place, source: run.source, page: "partitions" }), search: "" };
  }
  if (cell.known?.reported_by) {
    const path = taskPath(cell.known.reported_by);
    return path === null ? null : { pathname: path, search: "" };
  }
  const hold = cell.held.find((each) => isStuck(each, card)) ?? cell.held[0];
  return hold === undefined ? null : holdTarget(hold.name, place);
}

/** Return the page of the partitions whose key contains the name of what holds an interval. */
export function holdTarget(name: string, place: Place): Target {
  return { pathname: pathOf({ ...place, page: "partitions" }), search: withParameters("", { search: name }) };
}
