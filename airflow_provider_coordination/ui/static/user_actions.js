/** The actions of users on partitions and supervisors, as the API describes them. */

import { request } from "./api.js";
import { useSyncExternalStore } from "./host.js";

/** @type {Api.UserAction} */
const UNKNOWN = { name: "", label: "", done: "", text: "", text_for_many: "", risk: "", is_destructive: false };

const RETRY_SECONDS = 5;

/** What the API says, requested once for all pages: it depends on nothing but the version of the provider. */
const actions = {
  /** @type {Record<string, Api.UserAction[]>|null} */
  known: null,
  isRequested: false,
  /** @type {Set<() => void>} */
  listeners: new Set(),
  async load() {
    if (actions.isRequested) return;
    actions.isRequested = true;
    try {
      actions.known = await request("actions");
      actions.listeners.forEach((listener) => listener());
    } catch {
      actions.isRequested = false;
      setTimeout(() => actions.listeners.size && actions.load(), RETRY_SECONDS * 1000);
    }
  },
  /** @param {() => void} listener */
  subscribe(listener) {
    actions.listeners.add(listener);
    void actions.load();
    return () => actions.listeners.delete(listener);
  },
};

/**
 * Return the actions on partitions or supervisors, in the order of their buttons; none while they are not known.
 *
 * @param {"partitions"|"supervisors"} objects
 * @returns {Api.UserAction[]}
 */
export function useActions(objects) {
  return useSyncExternalStore(actions.subscribe, () => actions.known)?.[objects] ?? [];
}

/**
 * Return an action by its name, with the palette of its button.
 *
 * @param {"partitions"|"supervisors"} objects
 * @param {string} name
 */
export function useActionNamed(objects, name) {
  const action = useActions(objects).find((each) => each.name === name) ?? UNKNOWN;
  return { ...action, palette: action.is_destructive ? "red" : "brand" };
}
