/** When to ask the API again. Pure decisions, so that they can be tested without waiting. */

export const EVERY_SECONDS = 2;
const LONGEST_SECONDS = 30;

/**
 * Return in how many seconds to ask again; null for never.
 *
 * @param {{
 *   problem: string|null, failures: number, chance: number, every?: number,
 * }} last `problem` is the kind of the problem
 *     that the last answer was, or null, and `failures` how often in a row it was one; `chance`, from 0 to 1, sets many tabs
 *     apart; `every` is how often while all is well, in seconds
 */
export function secondsToNext({ problem, failures, chance, every = EVERY_SECONDS }) {
  if (problem === "session") return null;
  const spread = 0.9 + 0.2 * chance;
  if (problem === null) return every * spread;
  if (problem === "forbidden" || problem === "missing" || problem === "refused") return LONGEST_SECONDS * spread;
  return Math.min(LONGEST_SECONDS, every * 2 ** Math.min(failures - 1, 10)) * spread;
}
