/** The audit of a supervised source: what was read, compared with what each sink of its spec has. */

import { request } from "./api.js";
import { Fragment, h, useState } from "./host.js";
import { itemsOf, summaryOf } from "./audit_findings.js";
import { ActionButtons, Outcomes, useAction } from "./action_widgets.js";
import { ReasonDialog } from "./reason_dialog.js";
import { sourceApi } from "./urls.js";

const TEXT =
  "Compares, for each partition, the ranges that were read with what each sink has. It reads logs and names of files, and no rows. It changes nothing.";

/**
 * The button of the audit, for users who may change the connection.
 *
 * @param {{place: Place, connection: Api.ConnectionRow|null}} props
 */
export function AuditButton({ place, connection }) {
  const [isOpen, setOpen] = useState(false);
  return h(
    Fragment,
    null,
    h(ActionButtons, { actions: [{ name: "audit", verb: "Audit", text: TEXT }], connection, onPick: () => setOpen(true) }),
    isOpen && h(AuditDialog, { place, onClose: () => setOpen(false) }),
  );
}

/**
 * @param {{place: Place, onClose: () => void}} props
 */
function AuditDialog({ place, onClose }) {
  const { run, ...attempt } = useAction();
  const [facts, setFacts] = useState(/** @type {Api.AuditFacts|null} */ (null));
  /** @param {string} reason */
  const onConfirm = (reason) =>
    run(async () => setFacts(await request(sourceApi(place.connection, place.source, "supervisor/audit"), { body: { reason } })));
  return h(ReasonDialog, {
    title: `Audit ${place.source}?`,
    text: TEXT,
    verb: "Audit",
    ...attempt,
    isDone: facts !== null,
    doneContent: facts !== null && h(Outcomes, { title: summaryOf(facts), items: itemsOf(facts) }),
    onConfirm,
    onClose,
    size: "xl",
  });
}
