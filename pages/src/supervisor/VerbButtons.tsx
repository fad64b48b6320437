import { useState } from "react";

import { ActionButtons } from "../actions/ActionButtons";
import { ReadOnlyNote } from "../actions/ReadOnlyNote";
import { useActions } from "../actions/userActions";
import type { ConnectionRow, SupervisorWithVerbs } from "../api/schema";
import { AuditDialog, VerbDialog } from "../dialogs";
import type { JsonObject, Place } from "../types";
import { NEW_SPEC } from "./specChanges";
import { AUDIT, OF_SOURCE } from "./verbs";

/**
 * The buttons of the audit, and of the actions that apply now.
 *
 * @param props `status` is null if there is no supervisor; `spec` is the one in effect, or the last one
 */
export function VerbButtons({
  place,
  status,
  spec,
  connection,
  refresh,
}: {
  place: Place;
  status: SupervisorWithVerbs | null;
  spec: JsonObject | null;
  connection: ConnectionRow | null;
  refresh: () => void;
}) {
  const [verb, setVerb] = useState<string | null>(null);
  const possible = status === null ? ["submit"] : status.verbs;
  const verbs = useActions("supervisors").filter(({ name }) => possible.includes(name) && !OF_SOURCE.includes(name));
  const actions = verbs.map(({ name, label, text }) => ({ name, verb: label, text }));
  return (
    <>
      <ActionButtons
        actions={status === null ? actions : [AUDIT, ...actions]}
        connection={connection}
        onPick={setVerb}
      />
      <ReadOnlyNote connection={connection} />
      {verb === AUDIT.name && <AuditDialog place={place} onClose={() => setVerb(null)} />}
      {verb !== null && verb !== AUDIT.name && (
        <VerbDialog
          verb={verb}
          place={place}
          seenVersion={status?.spec_version ?? null}
          spec={spec ?? { ...NEW_SPEC, source: place.source }}
          onClose={() => {
            setVerb(null);
            refresh();
          }}
        />
      )}
    </>
  );
}
