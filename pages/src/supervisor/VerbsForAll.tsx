import { useState } from "react";

import { ActionButtons } from "../actions/ActionButtons";
import { useActions } from "../actions/userActions";
import type { ConnectionRow } from "../api/schema";
import { ForAllDialog, VerbDialog } from "../dialogs";
import { NEW_SPEC } from "./specChanges";

/** The actions on all supervisors of a connection, and on a source that has none yet. */
export function VerbsForAll({
  connection,
  count,
  refresh,
}: {
  connection: ConnectionRow;
  count: number;
  refresh: () => void;
}) {
  const [verb, setVerb] = useState<string | null>(null);
  const verbs = useActions("supervisors").filter((each) => count > 0 && each.text_for_many !== "");
  const onClose = () => {
    setVerb(null);
    refresh();
  };
  return (
    <>
      <ActionButtons
        actions={[
          { name: "submit", verb: "Submit a spec", text: "Starts a supervisor for a source that has none yet." },
          ...verbs.map(({ name, label, text_for_many: text }) => ({ name: `${name}-all`, verb: `${label} all`, text })),
        ]}
        connection={connection}
        onPick={(name) => setVerb(name.replace("-all", ""))}
        size="2xs"
      />
      {verb === "submit" && (
        <VerbDialog
          verb={verb}
          place={{ connection: connection.connection_id, source: null }}
          seenVersion={null}
          spec={NEW_SPEC}
          onClose={onClose}
        />
      )}
      {verb !== null && verb !== "submit" && (
        <ForAllDialog verb={verb} connection={connection.connection_id} count={count} onClose={onClose} />
      )}
    </>
  );
}
