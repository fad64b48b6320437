import { Text } from "@chakra-ui/react";

import { readOnlyText } from "../api/permissions";
import type { ConnectionRow } from "../api/schema";

/** The note that users with read-only access see instead of buttons. */
export function ReadOnlyNote({ connection }: { connection: ConnectionRow | null }) {
  if (connection === null || connection.may_change) return null;
  return (
    <Text fontSize="xs" color="fg.muted" data-read-only>
      {readOnlyText(connection.connection_id)}
    </Text>
  );
}
