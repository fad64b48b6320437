/** The actions that suspend and resume a source. */

import { request } from "./api.js";
import { C, Fragment, h, useState } from "./host.js";
import { ActionButtons, useAction } from "./action_widgets.js";
import { sourceApi } from "./urls.js";
import { ReasonDialog } from "./reason_dialog.js";
import { readOnlyText } from "./permissions.js";
import { useMessage } from "./messages.js";
import { useActionNamed } from "./user_actions.js";

/** @param {Api.Suspension|null} suspended */
function useActionOn(suspended) {
  return useActionNamed("supervisors", suspended === null ? "suspend" : "resume");
}

/**
 * Suspends or resumes a source. Users with read-only access see a note instead.
 *
 * @param {{place: Place, card: Api.SourceCard, connection: Api.ConnectionRow|null, refresh: () => void}} props
 */
export function SuspendButton({ place, card, connection, refresh }) {
  // The suspension is fixed when the dialog opens, whatever another user does then.
  const [opened, setOpened] = useState(/** @type {{suspended: Api.Suspension|null}|null} */ (null));
  const { name, label, text } = useActionOn(card.suspended);
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
      actions: name === "" ? [] : [{ name, verb: label, text }],
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
  const { name, label, text, risk } = useActionOn(suspended);
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
  return h(ReasonDialog, { title: `${label} ${place.source}?`, text, risk, verb: label, onConfirm, onClose, ...attempt });
}
