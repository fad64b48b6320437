/** The actions that suspend and resume a source. */

import { request } from "./api.js";
import { C, Fragment, h, useState } from "./host.js";
import { ActionButtons, useAction } from "./action_widgets.js";
import { sourceApi } from "./urls.js";
import { ReasonDialog } from "./reason_dialog.js";
import { readOnlyText } from "./permissions.js";
import { useMessage } from "./messages.js";

const SUSPEND = {
  name: "suspend",
  verb: "Suspend",
  text: "Stops all work until a user resumes the source. Running jobs deliver what they have read, give their leases back and end. Sensors keep waiting.",
  risk: "A stream that is not read for longer than its retention loses data.",
};
const RESUME = {
  name: "resume",
  verb: "Resume",
  text: "Jobs take partitions again, and new work is discovered again.",
  risk: "None.",
};

/** @param {Api.Suspension|null} suspended */
function verbOf(suspended) {
  return suspended === null ? SUSPEND : RESUME;
}

/**
 * Suspends or resumes a source. Users with read-only access see a note instead.
 *
 * @param {{place: Place, card: Api.SourceCard, connection: Api.ConnectionRow|null, refresh: () => void}} props
 */
export function SuspendButton({ place, card, connection, refresh }) {
  // The suspension is fixed when the dialog opens, whatever another user does then.
  const [opened, setOpened] = useState(/** @type {{suspended: Api.Suspension|null}|null} */ (null));
  return h(
    Fragment,
    null,
    connection !== null &&
      !connection.may_change &&
      h(
        C.Badge,
        { size: "sm", variant: "surface", colorPalette: "gray", title: readOnlyText(connection.connection_id) },
        "read only",
      ),
    h(ActionButtons, {
      actions: [verbOf(card.suspended)],
      connection,
      onPick: () => setOpened({ suspended: card.suspended }),
    }),
    opened !== null && h(SuspensionDialog, { place, ...opened, refresh, onClose: () => setOpened(null) }),
  );
}

/**
 * @param {{place: Place, suspended: Api.Suspension|null, refresh: () => void, onClose: () => void}} props
 */
function SuspensionDialog({ place, suspended, refresh, onClose }) {
  const { name, verb, text, risk } = verbOf(suspended);
  const { run, ...attempt } = useAction();
  const showMessage = useMessage();
  /** @param {string} reason */
  const onConfirm = async (reason) => {
    await run(async () => {
      const body = suspended === null ? { reason } : { reason, since: suspended.since };
      await request(sourceApi(place.connection, place.source, name), { body });
      showMessage(suspended === null ? `${place.source} is suspended.` : `${place.source} is resumed.`);
      onClose();
    });
    refresh();
  };
  return h(ReasonDialog, { title: `${verb} ${place.source}?`, text, risk, verb, onConfirm, onClose, ...attempt });
}
