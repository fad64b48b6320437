/** The rights of the user: the connections that they may view, and whether they may act on them. */

import { useLive } from "./live.js";

/**
 * Return a connection from `/connections`; null while it is not known.
 *
 * @param {string} connectionId
 * @returns {Api.ConnectionRow|null}
 */
export function useConnection(connectionId) {
  const { response } = useLive("connections", { every: 30 });
  return response?.connections.find((/** @type {Api.ConnectionRow} */ each) => each.connection_id === connectionId) ?? null;
}

/**
 * Return the note for users with read-only access.
 *
 * @param {string} connectionId
 */
export function readOnlyText(connectionId) {
  return `You have read-only access. Actions need the permission “can edit” on the connection “${connectionId}”.`;
}
