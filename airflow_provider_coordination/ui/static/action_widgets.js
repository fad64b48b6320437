/** What all actions share: their buttons, their requests to the API, and their outcomes. */

import { C, h, useEffect, useRef, useState } from "./host.js";
import { readOnlyText } from "./permissions.js";

const LISTED = 20;

/**
 * The buttons that open the dialogs of actions. Users with read-only access have none.
 *
 * @param {{
 *   actions: ActionOption[], connection: Api.ConnectionRow|null, onPick: (name: any) => void, size?: string,
 * }} props
 */
export function ActionButtons({ actions, connection, onPick, size = "xs" }) {
  if (!connection?.may_change || actions.length === 0) return null;
  return h(
    C.Flex,
    { gap: 2, wrap: "wrap" },
    ...actions.map(({ name, verb, text, palette, isDisabled }) =>
      h(
        C.Button,
        {
          key: name,
          size,
          variant: "outline",
          colorPalette: palette,
          disabled: isDisabled,
          title: text,
          "data-action": name,
          onClick: () => onPick(name),
        },
        `${verb}…`,
      ),
    ),
  );
}

/**
 * The note that users with read-only access see instead of buttons.
 *
 * @param {{connection: Api.ConnectionRow|null}} props
 */
export function ReadOnlyNote({ connection }) {
  if (connection === null || connection.may_change) return null;
  return h(
    C.Text,
    { fontSize: "xs", color: "fg.muted", "data-read-only": true },
    readOnlyText(connection.connection_id),
  );
}

/**
 * Return what runs an action, whether it is running, and why it failed, as `ReasonDialog` expects them.
 *
 * @returns {{run: (act: () => Promise<void>) => Promise<void>, isBusy: boolean, problem: ProblemLike|null}}
 */
export function useAction() {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {ProblemLike|null} */ (null));
  /** @param {() => Promise<void>} act */
  const run = async (act) => {
    setBusy(true);
    setProblem(null);
    try {
      await act();
    } catch (error) {
      // An error that is no response of the server is about the user's input.
      const kind = /** @type {Partial<ProblemLike>} */ (error).kind ?? "refused";
      setProblem({ kind, message: error instanceof Error ? error.message : String(error), status: null });
    } finally {
      setBusy(false);
    }
  };
  return { run, isBusy, problem };
}

/**
 * The outcomes of an action that the user should read, one by one.
 *
 * @param {{
 *   title: string, items: {key: string, palette?: string, outcome?: string, content: Content}[], children?: Content,
 * }} props
 */
export function Outcomes({ title, items, children }) {
  // The element with the focus is gone: screen readers continue here.
  const top = useRef(/** @type {HTMLElement|null} */ (null));
  useEffect(() => top.current?.focus(), []);
  return h(
    C.Stack,
    { gap: 3, ref: top, tabIndex: -1, outline: "none", role: "status", "data-results": true },
    h(C.Text, { fontWeight: "semibold" }, title),
    h(
      C.Stack,
      { as: "ul", gap: 2, listStyleType: "none", fontSize: "sm" },
      ...items.slice(0, LISTED).map(({ key, palette = "gray", outcome, content }) =>
        h(
          C.Box,
          {
            as: "li",
            key,
            borderStartWidth: 3,
            borderColor: `${palette}.solid`,
            ps: 2,
            overflowWrap: "anywhere",
            "data-outcome": outcome,
          },
          content,
        ),
      ),
      items.length > LISTED && h(C.Text, { as: "li", color: "fg.muted" }, `and ${items.length - LISTED} more`),
    ),
    children,
  );
}
