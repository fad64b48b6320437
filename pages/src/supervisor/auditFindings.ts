/** What an audit found, as text. */

import type { AuditFacts, AuditFinding } from "../api/schema";
import { plural } from "../format/text";

const PALETTES: Record<string, string> = { gap: "red", overlap: "orange", unexplained: "red" };

/** Return the result in a sentence. */
export function summaryOf(facts: AuditFacts) {
  const complete = `${facts.complete} of ${plural(facts.partitions, "partition")} complete`;
  return facts.state === "complete"
    ? `Everything is there exactly once: ${complete}.`
    : `The most severe finding is ${facts.state}: ${complete}.`;
}

/** Return the findings and the notes, as `Outcomes` lists them. */
export function itemsOf(facts: AuditFacts) {
  const findings = facts.findings.map((finding, number) => ({
    key: String(number),
    palette: finding.is_explained ? "gray" : PALETTES[finding.state],
    outcome: finding.is_explained ? "explained" : finding.state,
    content: textOf(finding),
  }));
  const notes = facts.notes.map((note) => ({ key: note, content: note }));
  const left =
    facts.left > 0 ? [{ key: "left", content: `${plural(facts.left, "finding")} more: use the command audit` }] : [];
  return [...findings, ...left, ...notes];
}

function textOf(finding: AuditFinding) {
  const where = [finding.sink, finding.partition_key].filter((part) => part !== "").join(", ");
  const range =
    finding.after === null && finding.until === null
      ? ""
      : ` (${positionText(finding.after)}, ${positionText(finding.until)}]`;
  const state = finding.is_explained ? `${finding.state}, explained` : finding.state;
  return `${where}${range}: ${state}. ${finding.reason}.${finding.remedy ? ` Remedy: ${finding.remedy}.` : ""}`;
}

function positionText(position: string | null) {
  return position === null ? "?" : position || "the start";
}
