/** Suspending a source, and letting it go on. */

import { ask } from "./api.js";
import { C, Fragment, h, useState } from "./host.js";
import { OrderButtons, useOrder } from "./action_widgets.js";
import { sourceApi } from "./urls.js";
import { ReasonDialog } from "./reason_dialog.js";
import { lookOnly } from "./permissions.js";
import { useTell } from "./messages.js";

const SUSPEND = {
  name: "suspend",
  verb: "Suspend",
  text: "No partition is taken and no work is looked for until somebody resumes it. Jobs deliver what they have in hand, give their leases back and end; sensors go on waiting.",
  risk: "A stream that stands still for longer than its retention loses data.",
};
const RESUME = {
  name: "resume",
  verb: "Resume",
  text: "Partitions are taken again, and work is looked for again.",
  risk: "None.",
};

/** @param {Api.SuspensionFacts|null} suspended */
function verbOf(suspended) {
  return suspended === null ? SUSPEND : RESUME;
}

/**
 * Suspends or resumes a source; where one may only look, it says so.
 *
 * @param {{place: Place, card: Api.SourceCard, connection: Api.ConnectionRow|null, refresh: () => void}} props
 */
export function SuspendButton({ place, card, connection, refresh }) {
  // What the dialog is about is settled when it opens, whatever somebody else does then: `{suspended}`.
  const [asked, setAsked] = useState(/** @type {{suspended: Api.SuspensionFacts|null}|null} */ (null));
  return h(
    Fragment,
    null,
    connection !== null &&
      !connection.may_change &&
      h(
        C.Badge,
        { size: "sm", variant: "surface", colorPalette: "gray", title: lookOnly(connection.connection_id) },
        "look only",
      ),
    h(OrderButtons, {
      orders: [verbOf(card.suspended)],
      connection,
      onPick: () => setAsked({ suspended: card.suspended }),
    }),
    asked !== null && h(SuspensionDialog, { place, ...asked, refresh, onClose: () => setAsked(null) }),
  );
}

/**
 * @param {{place: Place, suspended: Api.SuspensionFacts|null, refresh: () => void, onClose: () => void}} props
 */
function SuspensionDialog({ place, suspended, refresh, onClose }) {
  const { name, verb, text, risk } = verbOf(suspended);
  const { give, ...order } = useOrder();
  const tell = useTell();
  /** @param {string} reason */
  const onConfirm = async (reason) => {
    await give(async () => {
      const body = suspended === null ? { reason } : { reason, since: suspended.since };
      await ask(sourceApi(place.connection, place.source, name), { body });
      tell(suspended === null ? `${place.source} is suspended.` : `${place.source} goes on.`);
      onClose();
    });
    refresh();
  };
  return h(ReasonDialog, { title: `${verb} ${place.source}?`, text, risk, verb, onConfirm, onClose, ...order });
}
