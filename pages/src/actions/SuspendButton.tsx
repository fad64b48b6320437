import { Badge } from "@chakra-ui/react";
import { useState } from "react";

import { readOnlyText } from "../api/permissions";
import type { ConnectionRow, SourceCard, Suspension } from "../api/schema";
import type { Place } from "../types";
import { ActionButtons } from "./ActionButtons";
import { SuspensionDialog } from "../dialogs";
import { useActionOn } from "./useActionOn";

/** Suspends or resumes a source. Users with read-only access see a note instead. */
export function SuspendButton({
  place,
  card,
  connection,
  refresh,
}: {
  place: Place;
  card: SourceCard;
  connection: ConnectionRow | null;
  refresh: () => void;
}) {
  // The suspension is fixed when the dialog opens, whatever another user does then.
  const [opened, setOpened] = useState<{ suspended: Suspension | null } | null>(null);
  const { name, label, text } = useActionOn(card.suspended);
  return (
    <>
      {connection !== null && !connection.may_change && (
        <Badge size="sm" variant="surface" colorPalette="gray" title={readOnlyText(connection.connection_id)}>
          read only
        </Badge>
      )}
      <ActionButtons
        actions={name === "" ? [] : [{ name, verb: label, text }]}
        connection={connection}
        onPick={() => setOpened({ suspended: card.suspended })}
      />
      {opened !== null && (
        <SuspensionDialog place={place} {...opened} refresh={refresh} onClose={() => setOpened(null)} />
      )}
    </>
  );
}
