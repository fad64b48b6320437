/** The tables of a supervisor: its jobs, the lag of each partition, and its errors. */

import { lagText } from "../format/time";

export function lagOf(milliseconds: number | null) {
  return milliseconds === null ? "unknown" : lagText(milliseconds / 1000);
}

const NOT_OF_RECORD = ["at", "stage", "error", "owner", "index"];

/** Return the fields that identify the record of an error. */
export function recordOf(error: object) {
  return Object.entries(error)
    .filter(([name, value]) => !NOT_OF_RECORD.includes(name) && value !== null)
    .map(([name, value]) => `${name}=${value}`)
    .join(" ");
}
