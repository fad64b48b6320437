/** The dialog of every action: its effect, its risk, and the reason that the user gives. */

import { logIn } from "./api.js";
import { C, h, useEffect, useRef, useState } from "./host.js";
import { ManualLink } from "./widgets.js";

const MAX_REASON = 500;

/**
 * A dialog that runs an action once the user has given a reason.
 *
 * @param {{
 *   title: string, text?: Content, risk?: Content, verb: string, palette?: string, needsReason?: boolean,
 *   onClose: () => void, onConfirm: (reason: string) => unknown, children?: Content, problem: ProblemLike|null,
 *   isDone?: boolean, doneContent?: Content, isBusy: boolean, size?: string,
 * }} props
 */
export function ReasonDialog({
  title,
  text,
  risk,
  verb,
  palette = "brand",
  needsReason = true,
  onClose,
  onConfirm,
  children,
  problem,
  isDone,
  doneContent,
  isBusy,
  size = "md",
}) {
  const [reason, setReason] = useState("");
  const [isTouched, setTouched] = useState(false);
  const first = useRef(/** @type {HTMLTextAreaElement|null} */ (null));
  const [opener] = useState(() => document.activeElement);
  const isMissing = needsReason && reason.trim() === "";
  /** @param {ReactFormEvent} event */
  const submit = (event) => {
    event.preventDefault();
    setTouched(true);
    if (isMissing) first.current?.focus();
    else if (!isBusy) void onConfirm(reason.trim());
  };
  return h(
    C.Dialog.Root,
    {
      open: true,
      role: "alertdialog",
      placement: "center",
      size,
      scrollBehavior: "inside",
      onOpenChange: ({ open }) => !open && !isBusy && onClose(),
      // Null would be an error; with undefined the first element gets the focus.
      initialFocusEl: () => first.current ?? undefined,
      finalFocusEl: () => focusTargetAfter(opener),
      closeOnInteractOutside: false,
    },
    h(
      C.Portal,
      null,
      h(C.Dialog.Backdrop),
      h(
        C.Dialog.Positioner,
        null,
        h(
          C.Dialog.Content,
          { mx: 3, "data-dialog": verb },
          h(
            "form",
            { onSubmit: submit, noValidate: true, style: { display: "contents" } },
            h(C.Dialog.Header, { pb: 2 }, h(C.Dialog.Title, { overflowWrap: "anywhere" }, title)),
            h(
              C.Dialog.Body,
              null,
              isDone
                ? doneContent
                : h(
                    C.Stack,
                    { gap: 4 },
                    h(
                      C.Box,
                      null,
                      h(C.Dialog.Description, { color: "fg" }, text),
                      risk &&
                        h(C.Text, { fontSize: "sm", color: "fg.muted", mt: 1 }, h(C.Strong, null, "Risk: "), risk),
                    ),
                    children,
                    needsReason &&
                      h(
                        C.Field.Root,
                        { required: true, invalid: isTouched && isMissing },
                        h(C.Field.Label, null, "Reason", h(C.Field.RequiredIndicator)),
                        h(C.Input, {
                          ref: first,
                          value: reason,
                          maxLength: MAX_REASON,
                          autoComplete: "off",
                          placeholder: "Shown in the history and in the audit log",
                          onChange: (event) => setReason(event.target.value),
                        }),
                        h(
                          C.Field.ErrorText,
                          null,
                          "Enter a reason. The history and Airflow’s audit log keep it.",
                        ),
                      ),
                    problem && h(ActionProblem, { problem }),
                  ),
            ),
            h(
              C.Dialog.Footer,
              { pt: 3 },
              h(
                C.Button,
                { variant: "outline", onClick: onClose, disabled: isBusy, type: "button" },
                isDone ? "Close" : "Cancel",
              ),
              !isDone &&
                h(
                  C.Button,
                  { type: "submit", colorPalette: palette, loading: isBusy, loadingText: verb, "data-confirm": true },
                  verb,
                ),
            ),
          ),
        ),
      ),
    ),
  );
}

/**
 * Return the element that gets the focus after a dialog: the one that opened it or, if that is gone, one around it.
 *
 * @param {Element|null} opener
 */
function focusTargetAfter(opener) {
  if (opener?.isConnected && opener !== document.body && !(/** @type {HTMLButtonElement} */ (opener).disabled)) return opener;
  for (const place of ["[data-drawer] [data-close]", "[data-coordination] [data-rows]", "[data-coordination] h1"]) {
    const found = document.querySelector(place);
    if (found !== null) return found;
  }
  return null;
}

/**
 * The reason why an action failed.
 *
 * @param {{problem: ProblemLike}} props
 */
function ActionProblem({ problem }) {
  // Below a long form it might not be visible.
  const shown = useRef(/** @type {HTMLElement|null} */ (null));
  useEffect(() => {
    shown.current?.scrollIntoView({ block: "nearest" });
  }, [problem]);
  const text = {
    session: "Your session has ended. Nothing was changed.",
    // Airflow refuses with this one word; the routes of this package give a reason.
    forbidden:
      problem.message === "Forbidden"
        ? "No permission: this action needs “can edit” on the connection. Nothing was changed."
        : `Refused: ${problem.message}. Nothing was changed.`,
    stale: `${problem.message}. Nothing was changed.`,
    unavailable: "The store is unavailable. The action may have been done: check the current state, then try again.",
    offline: "The API server did not respond. The action may have been done: check the current state, then try again.",
  }[problem.kind];
  const manual = {
    forbidden: { topic: "access" },
    unavailable: { topic: "store" },
    broken: { topic: "failed-request" },
  }[problem.kind];
  return h(
    C.Alert.Root,
    { ref: shown, status: "error", size: "sm", role: "alert", "data-problem": problem.kind },
    h(C.Alert.Indicator),
    h(C.Alert.Content, { color: "fg", overflowWrap: "anywhere", minW: 0 }, text ?? problem.message),
    manual && h(ManualLink, manual),
    problem.kind === "session" &&
      h(C.Button, { size: "xs", variant: "outline", type: "button", onClick: logIn }, "Log in again"),
  );
}
