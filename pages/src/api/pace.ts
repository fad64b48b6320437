/** When to send the next request. Pure functions, so that they can be tested without waiting. */

export const EVERY_SECONDS = 2;
const LONGEST_SECONDS = 30;

/**
 * Return the seconds until the next request; null for never.
 *
 * @param last `problem` is the kind of the
 *     last problem, or null; `failures` is the number of failures in a row; `chance`, from 0 to 1, spreads the requests of
 *     many tabs; `every` is the interval without problems, in seconds
 */
export function secondsToNext({
  problem,
  failures,
  chance,
  every = EVERY_SECONDS,
}: {
  problem: string | null;
  failures: number;
  chance: number;
  every?: number;
}) {
  if (problem === "session") return null;
  const spread = 0.9 + 0.2 * chance;
  if (problem === null) return every * spread;
  if (problem === "forbidden" || problem === "missing" || problem === "refused") return LONGEST_SECONDS * spread;
  return Math.min(LONGEST_SECONDS, every * 2 ** Math.min(failures - 1, 10)) * spread;
}
