/**
 * Answers that stay fresh: asked again every two seconds while the page can be seen, more rarely while there is a
 * problem, and never after one has left.
 *
 * Airflow makes a plugin's page anew at each change of its path, so the latest answers are remembered outside of it:
 * going from page to page shows what was known at once.
 */

import { ask } from "./api.js";
import { useCallback, useEffect, useReducer, useRef, useSyncExternalStore } from "./host.js";
import { Loop } from "./polling.js";
import { EVERY_SECONDS } from "./refresh_pause.js";

const REMEMBERED = 30;
/** @type {Map<string, any>} */
const answers = new Map();

/**
 * @param {string} path
 * @param {any} answer
 */
function remember(path, answer) {
  answers.delete(path);
  answers.set(path, answer);
  if (answers.size > REMEMBERED) answers.delete(answers.keys().next().value ?? "");
}

/** Whether a person has paused all refreshing. */
const pause = {
  isPaused: false,
  /** @type {Set<() => void>} */
  listeners: new Set(),
  toggle() {
    pause.isPaused = !pause.isPaused;
    pause.listeners.forEach((listener) => listener());
  },
  /** @param {() => void} listener */
  subscribe(listener) {
    pause.listeners.add(listener);
    return () => pause.listeners.delete(listener);
  },
};

/**
 * Return whether refreshing is paused, and what turns that over.
 *
 * @returns {[boolean, () => void]}
 */
export function usePause() {
  return [useSyncExternalStore(pause.subscribe, () => pause.isPaused), pause.toggle];
}

/**
 * Do something again and again while the page can be seen: the loop behind every page.
 *
 * @param {(signal: AbortSignal) => Promise<void>} look what is done; throws a `Problem`
 * @param {{every?: number, isOn?: boolean}} [options]
 * @returns {Refreshed<any>} without an answer of its own
 */
export function useLoop(look, { every = EVERY_SECONDS, isOn = true } = {}) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const current = useRef(/** @type {Loop|null} */ (null));
  useEffect(() => {
    if (!isOn) return undefined;
    const loop = new Loop(look, {
      every,
      isSeen: () => document.visibilityState === "visible",
      isPaused: () => pause.isPaused,
      onChange: redraw,
    });
    const onSeen = () => loop.seen();
    const forget = pause.subscribe(() => loop.paused());
    document.addEventListener("visibilitychange", onSeen);
    current.current = loop;
    void loop.refresh();
    redraw(); // another question's problem is not this one's
    return () => {
      loop.stop();
      forget();
      document.removeEventListener("visibilitychange", onSeen);
      current.current = null;
    };
  }, [look, every, isOn]);
  const refresh = useCallback(() => void current.current?.refresh(), []);
  const { problem = null, nextAt = null } = current.current ?? {};
  return { answer: null, problem, nextAt, refresh };
}

/**
 * Return the answer to a question, kept fresh.
 *
 * @param {string|null} path below `/coordination/`; null for no question
 * @param {{every?: number}} [options]
 * @returns {Refreshed<any>}
 */
export function useLive(path, { every } = {}) {
  const look = useCallback(
    /** @param {AbortSignal} signal */
    async (signal) => {
      if (path !== null) remember(path, await ask(path, { signal }));
    },
    [path],
  );
  const loop = useLoop(look, { every, isOn: path !== null });
  return { ...loop, answer: (path !== null && answers.get(path)) || null };
}
