import { useState } from "react";

import { ActionButtons } from "../actions/ActionButtons";
import type { ConnectionRow } from "../api/schema";
import type { Place } from "../types";
import { AuditDialog } from "../dialogs";
import { TEXT } from "./auditText";

/** The button of the audit, for users who may change the connection. */
export function AuditButton({ place, connection }: { place: Place; connection: ConnectionRow | null }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <ActionButtons
        actions={[{ name: "audit", verb: "Audit", text: TEXT }]}
        connection={connection}
        onPick={() => setOpen(true)}
      />
      {isOpen && <AuditDialog place={place} onClose={() => setOpen(false)} />}
    </>
  );
}
