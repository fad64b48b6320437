/** What a person may do: the connections that they see, and whether they may act on them. */

import { useLive } from "./live.js";

/**
 * Return a connection as `/connections` tells it; null while that is not known.
 *
 * @param {string} connectionId
 * @returns {Api.ConnectionRow|null}
 */
export function useConnection(connectionId) {
  const { answer } = useLive("connections", { every: 30 });
  return answer?.connections.find((/** @type {Api.ConnectionRow} */ each) => each.connection_id === connectionId) ?? null;
}

/**
 * Return what to say to those who may look and not act.
 *
 * @param {string} connectionId
 */
export function lookOnly(connectionId) {
  return `You may look, and not change anything: that needs the right “can edit” on the connection “${connectionId}”.`;
}
