/** The labels, colours, signs and meanings of the states of intervals. A colour never stands alone. */

import type { State } from "../types";
import type { IntervalState } from "./cells";

export const INTERVALS: Record<IntervalState, State & { sign: string }> = {
  failed: {
    label: "Failed",
    palette: "red",
    sign: "!",
    meaning: "A partition of it is parked or fails. Fix the cause, then reopen it.",
  },
  running: {
    label: "In progress",
    palette: "cyan",
    sign: "…",
    meaning: "Not everything of it is delivered yet.",
  },
  reporting: {
    label: "Being reported",
    palette: "purple",
    sign: "→",
    meaning: "It is complete, and a task took it to report it. The next one follows when that task has succeeded.",
  },
  due: {
    label: "To be reported",
    palette: "blue",
    sign: "↑",
    meaning: "It is complete, and no task has reported it yet.",
  },
  waiting: {
    label: "Waiting",
    palette: "gray",
    sign: "○",
    meaning: "Partitions of it wait for a job.",
  },
  unknown: {
    label: "Not examined",
    palette: "gray",
    sign: "?",
    meaning: "There are too many runs to examine all. Choose a shorter time range.",
  },
  complete: {
    label: "Complete",
    palette: "green",
    sign: "✓",
    meaning: "Everything of it is delivered.",
  },
  none: {
    label: "Nothing known",
    palette: "gray",
    sign: "–",
    meaning: "It is not counted, and no run has found anything of it.",
  },
  ahead: { label: "Not begun", palette: "gray", sign: "", meaning: "It lies ahead." },
};
