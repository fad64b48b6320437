import { useState } from "react";

import { Outcomes } from "../actions/Outcomes";
import { ReasonDialog } from "../actions/ReasonDialog";
import { useAction } from "../actions/useAction";
import { request } from "../api/request";
import type { AuditFacts } from "../api/schema";
import type { Place } from "../types";
import { sourceApi } from "../urls";
import { itemsOf, summaryOf } from "./auditFindings";
import { AUDIT } from "./verbs";

export function AuditDialog({ place, onClose }: { place: Place; onClose: () => void }) {
  const { run, ...attempt } = useAction();
  const [facts, setFacts] = useState<AuditFacts | null>(null);

  const onConfirm = (reason: string) =>
    run(async () =>
      setFacts(await request(sourceApi(place.connection, place.source, "supervisor/audit"), { body: { reason } })),
    );
  return (
    <ReasonDialog
      title={`Audit ${place.source}?`}
      text={AUDIT.text}
      verb={AUDIT.verb}
      {...attempt}
      isDone={facts !== null}
      doneContent={facts !== null && <Outcomes title={summaryOf(facts)} items={itemsOf(facts)} />}
      onConfirm={onConfirm}
      onClose={onClose}
      size="xl"
    />
  );
}
