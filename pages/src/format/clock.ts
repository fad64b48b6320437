/** The current time on a page, and the time zone that is selected in Airflow's UI. */

import { useSyncExternalStore } from "react";

import { clock } from "../api/request";
import { chosenZone } from "./time";

const listeners = new Set<() => void>();

let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void) {
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

function subscribeZone(listener: () => void) {
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
