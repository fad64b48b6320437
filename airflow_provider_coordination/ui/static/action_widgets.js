/** What all orders have in common: their buttons, asking the API, and saying what became of each thing. */

import { C, h, useEffect, useRef, useState } from "./host.js";
import { lookOnly } from "./permissions.js";

const LISTED = 20;

/**
 * The buttons that open the dialogs of orders. Those who may only look have none.
 *
 * @param {{
 *   orders: Order[], connection: Api.ConnectionRow|null, onPick: (name: any) => void, size?: string,
 * }} props
 */
export function OrderButtons({ orders, connection, onPick, size = "xs" }) {
  if (!connection?.may_change || orders.length === 0) return null;
  return h(
    C.Flex,
    { gap: 2, wrap: "wrap" },
    ...orders.map(({ name, verb, text, palette, isDisabled }) =>
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
 * What those read who may look and not act, in place of buttons.
 *
 * @param {{connection: Api.ConnectionRow|null}} props
 */
export function LookOnly({ connection }) {
  if (connection === null || connection.may_change) return null;
  return h(
    C.Text,
    { fontSize: "xs", color: "fg.muted", "data-look-only": true },
    lookOnly(connection.connection_id),
  );
}

/**
 * Return what gives an order: whether it is on its way, and why it failed, as `ReasonDialog` takes them.
 *
 * @returns {{give: (act: () => Promise<void>) => Promise<void>, isBusy: boolean, problem: ProblemLike|null}}
 */
export function useOrder() {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {ProblemLike|null} */ (null));
  /** @param {() => Promise<void>} act */
  const give = async (act) => {
    setBusy(true);
    setProblem(null);
    try {
      await act();
    } catch (error) {
      // What is no answer of the server is about what the person wrote.
      const kind = /** @type {Partial<ProblemLike>} */ (error).kind ?? "refused";
      setProblem({ kind, message: error instanceof Error ? error.message : String(error), status: null });
    } finally {
      setBusy(false);
    }
  };
  return { give, isBusy, problem };
}

/**
 * What became of an order: what is worth a look, one by one.
 *
 * @param {{
 *   title: string, items: {key: string, palette?: string, outcome?: string, content: Content}[], children?: Content,
 * }} props
 */
export function Outcomes({ title, items, children }) {
  // What had the focus is gone: whoever hears the page goes on here.
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
