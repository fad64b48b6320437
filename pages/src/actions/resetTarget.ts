/** The target position of a reset: the choice, and the text that some choices need. */

import type { ResetTarget } from "../types";

export const CHOICES: Record<string, string> = {
  earliest: "The earliest available position (everything that the source still has)",
  latest: "Now: only new data",
  instant: "An instant",
  number: "After a sequence number",
  positions: "Individual positions of some partitions",
};

const NUMBER = "4959033827149025660855969253836157109592157";

/** what some choices need */
export const GIVEN: Record<string, { label: string; placeholder: string; rows?: number }> = {
  instant: { label: "Time, with its time zone", placeholder: "2026-01-31T00:00:00Z" },
  number: { label: "Sequence number", placeholder: NUMBER },
  positions: {
    label: "One line for each partition: its key and the position",
    placeholder: `shardId-000000000000 ${NUMBER}`,
    rows: 4,
  },
};

export const EARLIEST: ResetTarget = { name: "earliest", text: "" };

/** Return the target position in the format of the API; not for individual positions. */
export function targetText({ name, text }: ResetTarget) {
  return name in GIVEN ? text.trim() : name;
}
