/**
 * Responses that are kept fresh: requested again every two seconds while the page is visible, less often while there is a
 * problem, and never after the user has left the page.
 *
 * Airflow creates a plugin's page again at each change of its path. So the latest responses are kept outside of it, and
 * the next page shows them at once.
 */

import { request } from "./api.js";
import { useCallback, useEffect, useReducer, useRef, useSyncExternalStore } from "./host.js";
import { Loop } from "./polling.js";
import { EVERY_SECONDS } from "./refresh_pause.js";

const REMEMBERED = 30;
/** @type {Map<string, any>} */
const responses = new Map();

/**
 * @param {string} path
 * @param {any} response
 */
function remember(path, response) {
  responses.delete(path);
  responses.set(path, response);
  if (responses.size > REMEMBERED) responses.delete(responses.keys().next().value ?? "");
}

/** Whether the user has paused all updates. */
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
 * Return whether updates are paused, and the function that toggles it.
 *
 * @returns {[boolean, () => void]}
 */
export function usePause() {
  return [useSyncExternalStore(pause.subscribe, () => pause.isPaused), pause.toggle];
}

/**
 * Do something repeatedly while the page is visible: the loop behind every page.
 *
 * @param {(signal: AbortSignal) => Promise<void>} poll what is done; throws a `Problem`
 * @param {{every?: number, isOn?: boolean}} [options]
 * @returns {Refreshed<any>} without a response of its own
 */
export function usePolling(poll, { every = EVERY_SECONDS, isOn = true } = {}) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const current = useRef(/** @type {Loop|null} */ (null));
  useEffect(() => {
    if (!isOn) return undefined;
    const loop = new Loop(poll, {
      every,
      isVisible: () => document.visibilityState === "visible",
      isPaused: () => pause.isPaused,
      onChange: redraw,
    });
    const onVisible = () => loop.onVisible();
    const forget = pause.subscribe(() => loop.onPauseChange());
    document.addEventListener("visibilitychange", onVisible);
    current.current = loop;
    void loop.refresh();
    redraw(); // the problem of another request does not belong to this one
    return () => {
      loop.stop();
      forget();
      document.removeEventListener("visibilitychange", onVisible);
      current.current = null;
    };
  }, [poll, every, isOn]);
  const refresh = useCallback(() => void current.current?.refresh(), []);
  const { problem = null, nextAt = null } = current.current ?? {};
  return { response: null, problem, nextAt, refresh };
}

/**
 * Return the response to a request, kept fresh.
 *
 * @param {string|null} path below `/coordination/`; null for no request
 * @param {{every?: number}} [options]
 * @returns {Refreshed<any>}
 */
export function useLive(path, { every } = {}) {
  const poll = useCallback(
    /** @param {AbortSignal} signal */
    async (signal) => {
      if (path !== null) remember(path, await request(path, { signal }));
    },
    [path],
  );
  const loop = usePolling(poll, { every, isOn: path !== null });
  return { ...loop, response: (path !== null && responses.get(path)) || null };
}
