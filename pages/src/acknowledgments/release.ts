/** The batches that await acknowledgment: the time left, the missing handles, and their release. */

import type { AcknowledgmentSet } from "../types";

export const LIMIT = 500;

/** Return the handles with open references. Those of sinks come last, as only the job releases them. */
export function openHandlesOf(set: AcknowledgmentSet) {
  const sinks = new Set(set.sinks);
  return Object.entries(set.references)
    .filter(([, count]) => count > 0)
    .map(([handle, count]) => ({ handle, count, isSink: sinks.has(handle) }))
    .sort((a, b) => Number(a.isSink) - Number(b.isSink));
}

export const ACKNOWLEDGE = {
  name: "acknowledge",
  verb: "Acknowledge",
  palette: "green",
  text: "Confirms that the batch arrived. Once every handle has confirmed it, the checkpoint moves past it.",
  risk: "If the data did not arrive, it is lost.",
};
export const REJECT = {
  name: "reject",
  verb: "Reject",
  palette: "red",
  text: "Reports that the batch did not arrive. It is delivered again, and the failure is counted.",
  risk: "After several failures in a row, its partition is closed for a while, then parked.",
};

export function releaseOf(positive: boolean) {
  return positive ? ACKNOWLEDGE : REJECT;
}

export const EFFECTS: Record<string, string> = {
  late: "too late: the set had already ended",
  duplicate: "already released: nothing changed",
};
