/** Repeated requests: when the next one is sent, and what stops them. Independent of any page. */

import { Problem } from "./api.js";
import { secondsToNext } from "./refresh_pause.js";

/**
 * Does something now and then repeatedly. Never twice at once, and not after `stop`.
 *
 * `problem` is the problem of the last time, or null. `nextAt` is the time of the next one by the browser's clock, or
 * null while one is running or none is planned.
 */
export class Loop {
  /** @type {Problem|null} */
  problem = null;
  /** @type {number|null} */
  nextAt = null;
  #controller = new AbortController();
  #failures = 0;
  #isRunning = false;
  #isWantedAgain = false;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer = undefined;

  /**
   * @param {(signal: AbortSignal) => Promise<void>} poll what to do; throws a `Problem`
   * @param {{every: number, isVisible: () => boolean, isPaused: () => boolean, onChange: () => void}} options `every` in
   *     seconds; `onChange` is called at each change of `problem` and `nextAt`
   */
  constructor(poll, { every, isVisible, isPaused, onChange }) {
    this.poll = poll;
    this.every = every;
    this.isVisible = isVisible;
    this.isPaused = isPaused;
    this.onChange = onChange;
  }

  /** Do it now or, if it is running, once more afterwards. */
  async refresh() {
    clearTimeout(this.#timer);
    const { signal } = this.#controller;
    if (signal.aborted) return;
    if (this.#isRunning) {
      this.#isWantedAgain = true;
      return;
    }
    this.#isRunning = true;
    this.nextAt = null;
    if (this.problem !== null) this.onChange(); // the shown countdown ends now
    const problem = await this.#problemOf(signal);
    if (signal.aborted) return;
    this.problem = problem;
    this.#failures = problem === null ? 0 : this.#failures + 1;
    this.#isRunning = false;
    if (this.#isWantedAgain) {
      this.#isWantedAgain = false;
      void this.refresh();
      return;
    }
    this.#plan();
    this.onChange();
  }

  /** Continue if that is due: the page is visible again. */
  onVisible() {
    if (this.#isRunning || this.isPaused() || !this.isVisible()) return;
    if (this.nextAt === null || this.nextAt <= Date.now()) void this.refresh();
  }

  /** Apply a change of the pause: stop, or continue at once. */
  onPauseChange() {
    if (!this.isPaused()) {
      void this.refresh();
      return;
    }
    if (!this.#isRunning) this.#plan();
    this.onChange();
  }

  /** End the loop, and cancel what is running. */
  stop() {
    clearTimeout(this.#timer);
    this.#controller.abort();
  }

  /** @param {AbortSignal} signal */
  async #problemOf(signal) {
    try {
      await this.poll(signal);
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
    this.#timer = setTimeout(() => this.isVisible() && void this.refresh(), seconds * 1000);
  }
}
