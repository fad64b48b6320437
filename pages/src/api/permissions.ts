/** The rights of the user: the connections that they may view, and whether they may act on them. */

import { useLive } from "./live";
import type { ConnectionRow, Connections } from "./schema";

/** Return a connection from `/connections`; null while it is not known. */
export function useConnection(connectionId: string): ConnectionRow | null {
  const { response } = useLive<Connections>("connections", { every: 30 });
  return response?.connections.find((each) => each.connection_id === connectionId) ?? null;
}

/** Return the note for users with read-only access. */
export function readOnlyText(connectionId: string) {
  return `You have read-only access. Actions need the permission “can edit” on the connection “${connectionId}”.`;
}
