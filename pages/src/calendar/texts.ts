/** An interval as text. */

import type { Counts, IntervalRun } from "../api/schema";
import { countText, plural, roughText } from "../format/text";
import type { Cell } from "./cells";
import { INTERVALS } from "./intervalStates";

/** Return the interval in UTC: `2026-01-31 13:00 to 14:00 UTC`. */
export function intervalText({ start, end }: { start: number; end: number }) {
  const [from, to] = [start, end].map((each) => new Date(each).toISOString().replace("T", " "));
  const [first, last] = [from, to].map((each) => (each.slice(17, 19) === "00" ? each.slice(0, 16) : each.slice(0, 19)));
  return `${first} to ${first.slice(0, 10) === last.slice(0, 10) ? last.slice(11) : last} UTC`;
}

/** Return counts as text; numbers that are 0 are left out. */
export function countsText(counts: Counts) {
  const texts = [plural(counts.records, "record"), `${roughText(counts.bytes)} bytes`];
  texts.push(plural(counts.batches, "batch", "batches"));
  if (counts.late > 0) texts.push(`${countText(counts.late)} left out by event time`);
  if (counts.dead_letters > 0) texts.push(plural(counts.dead_letters, "dead letter"));
  if (counts.is_reread) texts.push("some of them delivered again after a reset");
  return texts.join(", ");
}

/** Return the partitions of a run as text, by status. */
export function runText(run: IntervalRun) {
  if (run.partitions === null) return "not examined";
  const counted = Object.entries(run.partitions).filter(([, count]) => count > 0);
  const texts = counted.map(([status, count]) => `${countText(count)} ${status.toLowerCase()}`);
  if (run.parked) texts.push(`${countText(run.parked)} parked`);
  if (run.failing && run.failing > (run.parked ?? 0)) texts.push(`${countText(run.failing)} failing`);
  return texts.join(", ") || "no partitions";
}

/** Return the name of a cell for screen readers: the interval, its state, and what is counted. */
export function nameOf(cell: Cell) {
  const texts = [`${intervalText(cell)}: ${INTERVALS[cell.state].label}`];
  if (cell.known?.counts) texts.push(countsText(cell.known.counts));
  if (cell.known?.late) texts.push(plural(cell.known.late.records, "late record"));
  texts.push(...cell.held.slice(0, 1).map((hold) => `held by ${hold.name}: ${hold.reason}`));
  texts.push(...cell.runs.map((run) => `partitions: ${runText(run)}`));
  return texts.join("; ");
}
