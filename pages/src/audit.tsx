/** The audit of a supervised source: what was read, compared with what each sink of its spec has. */

import { useState } from "react";

import { ActionButtons, Outcomes, useAction } from "./action_widgets";
import { request } from "./api";
import { itemsOf, summaryOf } from "./audit_findings";
import { ReasonDialog } from "./reason_dialog";
import { sourceApi } from "./urls";
import type { AuditFacts, ConnectionRow } from "./schema";
import type { Place } from "./types";

const TEXT =
  "Compares, for each partition, the ranges that were read with what each sink has. It reads logs and names of files, and no rows. It changes nothing.";

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

function AuditDialog({ place, onClose }: { place: Place; onClose: () => void }) {
  const { run, ...attempt } = useAction();
  const [facts, setFacts] = useState<AuditFacts | null>(null);

  const onConfirm = (reason: string) =>
    run(async () =>
      setFacts(await request(sourceApi(place.connection, place.source, "supervisor/audit"), { body: { reason } })),
    );
  return (
    <ReasonDialog
      title={`Audit ${place.source}?`}
      text={TEXT}
      verb="Audit"
      {...attempt}
      isDone={facts !== null}
      doneContent={facts !== null && <Outcomes title={summaryOf(facts)} items={itemsOf(facts)} />}
      onConfirm={onConfirm}
      onClose={onClose}
      size="xl"
    />
  );
}
