/** The versions of a supervisor's spec: author, reason and changes of each, and its full text. */

/** the consequences of a change of the spec */
export const CONSEQUENCES: Record<string, string> = {
  NONE: "Nothing changed",
  COSMETIC: "Jobs continued: only descriptions changed",
  SUPERVISION: "Jobs continued: only the supervisor uses the change",
  JOBS: "Jobs handed over to new jobs of this version",
};
