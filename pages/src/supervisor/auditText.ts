/** The audit of a supervised source: what was read, compared with what each sink of its spec has. */

export const TEXT =
  "Compares, for each partition, the ranges that were read with what each sink has. It reads logs and file names, but no rows, and changes nothing.";
