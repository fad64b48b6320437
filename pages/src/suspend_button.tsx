/** The actions that suspend and resume a source. */

import { Badge } from "@chakra-ui/react";
import { useState } from "react";

import { ActionButtons, useAction } from "./action_widgets";
import { request } from "./api";
import { useMessage } from "./messages";
import { readOnlyText } from "./permissions";
import { ReasonDialog } from "./reason_dialog";
import { sourceApi } from "./urls";
import { useActionNamed } from "./user_actions";
import type { ConnectionRow, SourceCard, Suspension } from "./schema";
import type { Place } from "./types";

function useActionOn(suspended: Suspension | null) {
  return useActionNamed("supervisors", suspended === null ? "suspend" : "resume");
}

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

function SuspensionDialog({
  place,
  suspended,
  refresh,
  onClose,
}: {
  place: Place;
  suspended: Suspension | null;
  refresh: () => void;
  onClose: () => void;
}) {
  const { name, label, text, risk } = useActionOn(suspended);
  const { run, ...attempt } = useAction();
  const showMessage = useMessage();

  const onConfirm = async (reason: string) => {
    await run(async () => {
      const body = suspended === null ? { reason } : { reason, since: suspended.since };
      await request(sourceApi(place.connection, place.source, name), { body });
      showMessage(suspended === null ? `${place.source} is suspended.` : `${place.source} is resumed.`);
      onClose();
    });
    refresh();
  };
  return (
    <ReasonDialog
      title={`${label} ${place.source}?`}
      text={text}
      risk={risk}
      verb={label}
      onConfirm={onConfirm}
      onClose={onClose}
      {...attempt}
    />
  );
}
