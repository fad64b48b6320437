/** The current time on a page, and the time zone that is selected in Airflow's UI. */

import { clock } from "./api.js";
import { useSyncExternalStore } from "./host.js";
import { chosenZone } from "./time.js";

/** @type {Set<() => void>} */
const listeners = new Set();
/** @type {ReturnType<typeof setInterval>|undefined} */
let timer;

/** @param {() => void} listener */
function subscribe(listener) {
  listeners.add(listener);
  timer ??= setInterval(() => listeners.forEach((each) => each()), 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** Return the server's time in milliseconds, to the second. The component is drawn again each second. */
export function useNow() {
  return useSyncExternalStore(subscribe, () => Math.floor(clock.now() / 1000) * 1000);
}

/** @param {() => void} listener */
function subscribeZone(listener) {
  // Airflow's UI sends itself "local-storage"; browsers send "storage" to other tabs only.
  globalThis.addEventListener("storage", listener);
  globalThis.addEventListener("local-storage", listener);
  return () => {
    globalThis.removeEventListener("storage", listener);
    globalThis.removeEventListener("local-storage", listener);
  };
}

/** Return the name of the time zone in which instants are shown. */
export function useZone() {
  return useSyncExternalStore(subscribeZone, () => chosenZone(globalThis.localStorage));
}
