/** The tables of a supervisor: its jobs, the lag of each partition, and its errors. */

import { lagText } from "../format/time";

export function lagOf(milliseconds: number | null) {
  return milliseconds === null ? "unknown" : lagText(milliseconds / 1000);
}

/** Return the fields that identify the record of an error. */
export function recordOf({
  at: _at,
  stage: _stage,
  error: _error,
  owner: _owner,
  index: _index,
  ...record
}: Record<string, any>) {
  return Object.entries(record)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}=${value}`)
    .join(" ");
}
