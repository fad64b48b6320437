/** The actions of users on partitions and supervisors, as the API describes them. */

import { useLive } from "./live.js";

/** @type {Api.UserAction} */
const UNKNOWN = { name: "", label: "", done: "", text: "", text_for_many: "", risk: "", is_destructive: false };

/**
 * Return the actions on partitions or supervisors, in the order of their buttons; none while they are not known.
 *
 * @param {"partitions"|"supervisors"} objects
 * @returns {Api.UserAction[]}
 */
export function useActions(objects) {
  return useLive("actions", { every: 600 }).response?.[objects] ?? [];
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
