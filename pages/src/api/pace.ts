/** When to send the next request. Pure functions, so that they can be tested without waiting. */

export const EVERY_SECONDS = 2;
const LONGEST_SECONDS = 30;
/** Each tab has its own beat, so that many tabs do not ask at once. */
const BEAT_AT = Math.random() * EVERY_SECONDS * 1000;

/**
 * Return the milliseconds from an answer to the next request; null for never.
 *
 * Without a problem, requests are sent on a beat that all requests of the tab share, so that they are sent together.
 *
 * @param outcome `problem` is the kind of the problem, or null; `failures` is the number of failures in a row
 * @param at when the answer came, by the browser's clock
 * @param every the interval without problems, in seconds
 */
export function millisecondsToNext(
  { problem, failures }: { problem: string | null; failures: number },
  at: number,
  every = EVERY_SECONDS,
  beatAt = BEAT_AT,
) {
  if (problem === "session") return null;
  if (problem === null) {
    const beat = every * 1000;
    const wait = beat - ((at - beatAt) % beat);
    return wait < beat / 4 ? wait + beat : wait;
  }
  const spread = 0.9 + (0.2 * (at % 1000)) / 1000;
  if (problem === "forbidden" || problem === "missing" || problem === "refused") return LONGEST_SECONDS * 1000 * spread;
  return Math.min(LONGEST_SECONDS, every * 2 ** Math.min(failures - 1, 10)) * 1000 * spread;
}
