/** Actions on a supervisor, or on all supervisors of a connection. Each one needs a reason. */

import { targetText } from "../actions/resetTarget";
import type { ResetFacts, SubmissionFacts } from "../api/schema";
import type { ResetTarget } from "../types";
import { positionsOf, specOf } from "./specChanges";

/** Actions on the source of a supervisor: their button is in the page's head. */
export const OF_SOURCE = ["suspend", "resume"];

/** Return the body of an action without its reason. */
export function bodyOf(
  verb: string,
  {
    written,
    isChecked,
    target,
    version,
  }: { written: string; isChecked: boolean; target: ResetTarget; version: number | null },
) {
  if (verb === "submit")
    return { spec: specOf(written), connect: isChecked, ...(version === null ? {} : { replacing: version }) };
  if (verb !== "reset") return {};
  return target.name === "positions" ? { positions: positionsOf(target.text) } : { to: targetText(target) };
}

/** Return notes about the outcome: warnings, and the partitions that were not reset, and why. */
export function notesOf(verb: string, response: Partial<SubmissionFacts & ResetFacts>): string[] {
  if (verb === "submit") return response.warnings ?? [];
  if (verb !== "reset") return [];
  const { outcomes, unchanged, warnings } = response as ResetFacts;
  return [
    ...warnings,
    ...outcomes.filter(({ error }) => error !== "").map(({ partition_key: key, error }) => `${key}: ${error}`),
    ...Object.entries(unchanged).map(([key, why]) => `${key} is unchanged: ${why}`),
  ];
}

/** Compares what was read with what each sink of the spec has. */
export const AUDIT = {
  name: "audit",
  verb: "Audit",
  text: "Compares, for each partition, the ranges that were read with what each sink has. It reads logs and file names, but no rows, and changes nothing.",
};
