/** Asking again and again: when the next time comes, and what stops it. Nothing here knows of a page. */

import { Problem } from "./api.js";
import { secondsToNext } from "./refresh_pause.js";

/**
 * Does something now, and then again and again. Never twice at once, and not after it was stopped.
 *
 * `problem` is what the last time failed with, or null; `nextAt` is when the next one comes, by the browser's clock, or
 * null while it is under way, or none comes.
 */
export class Loop {
  /** @type {Problem|null} */
  problem = null;
  /** @type {number|null} */
  nextAt = null;
  #controller = new AbortController();
  #failures = 0;
  #isAsking = false;
  #isWantedAgain = false;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer = undefined;

  /**
   * @param {(signal: AbortSignal) => Promise<void>} look what is done; throws a `Problem`
   * @param {{every: number, isSeen: () => boolean, isPaused: () => boolean, onChange: () => void}} options `every` in
   *     seconds; `onChange` is told of each change of what is known here
   */
  constructor(look, { every, isSeen, isPaused, onChange }) {
    this.look = look;
    this.every = every;
    this.isSeen = isSeen;
    this.isPaused = isPaused;
    this.onChange = onChange;
  }

  /** Do it now, or, while it is under way, once more after that. */
  async refresh() {
    clearTimeout(this.#timer);
    const { signal } = this.#controller;
    if (signal.aborted) return;
    if (this.#isAsking) {
      this.#isWantedAgain = true;
      return;
    }
    this.#isAsking = true;
    this.nextAt = null;
    if (this.problem !== null) this.onChange(); // what is said about it counts down to this moment
    const problem = await this.#problemOf(signal);
    if (signal.aborted) return;
    this.problem = problem;
    this.#failures = problem === null ? 0 : this.#failures + 1;
    this.#isAsking = false;
    if (this.#isWantedAgain) {
      this.#isWantedAgain = false;
      void this.refresh();
      return;
    }
    this.#plan();
    this.onChange();
  }

  /** Go on where that is due: the page can be seen again. */
  seen() {
    if (this.#isAsking || this.isPaused() || !this.isSeen()) return;
    if (this.nextAt === null || this.nextAt <= Date.now()) void this.refresh();
  }

  /** Stop for as long as somebody wants to read what is there, or go on at once. */
  paused() {
    if (!this.isPaused()) {
      void this.refresh();
      return;
    }
    if (!this.#isAsking) this.#plan();
    this.onChange();
  }

  /** End it; what is under way is called off. */
  stop() {
    clearTimeout(this.#timer);
    this.#controller.abort();
  }

  /** @param {AbortSignal} signal */
  async #problemOf(signal) {
    try {
      await this.look(signal);
      return null;
    } catch (error) {
      if (error instanceof Problem) return error;
      if (!signal.aborted) console.error(error);
      return new Problem("broken", String(error instanceof Error ? error.message : error));
    }
  }

  #plan() {
    clearTimeout(this.#timer);
    this.nextAt = null;
    const seconds = secondsToNext({
      problem: this.problem?.kind ?? null,
      failures: this.#failures,
      chance: Math.random(),
      every: this.every,
    });
    if (seconds === null || this.isPaused()) return;
    this.nextAt = Date.now() + seconds * 1000;
    this.#timer = setTimeout(() => this.isSeen() && void this.refresh(), seconds * 1000);
  }
}
