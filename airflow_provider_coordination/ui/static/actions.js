/** What a person may order for partitions: it is done to what the person saw, and says what became of each. */

import { ask } from "./api.js";
import { C, Fragment, h, useRef, useState } from "./host.js";
import { inRequests, laterOf, versionSeen } from "./action_requests.js";
import { LookOnly, OrderButtons, Outcomes, useOrder } from "./action_widgets.js";
import { Chip, Shortened } from "./widgets.js";
import { sourceApi } from "./urls.js";
import { ReasonDialog } from "./reason_dialog.js";
import { EARLIEST, TargetField, targetText } from "./reset_target.js";
import { actionsFor } from "./states.js";
import { useTell } from "./messages.js";
import { plural } from "./text.js";

const LISTED = 6;

/** What can be done to partitions. `risk` says the worst that it does. */
const ACTIONS = {
  release: {
    verb: "Release",
    done: "Released",
    palette: "brand",
    text: "Ends the lease now, whoever holds it, so that another job can take it. Progress is kept.",
    risk: "If its job lives after all, the work in hand is done again. Nothing is delivered twice.",
  },
  reopen: {
    verb: "Reopen",
    done: "Reopened",
    palette: "brand",
    text: "Makes it available now, and forgets its failures. Progress is kept.",
    risk: "None. If the cause is not mended, it fails and is put aside again.",
  },
  park: {
    verb: "Park",
    done: "Parked",
    palette: "brand",
    text: "Puts it aside until somebody reopens it, whoever holds it. Progress is kept.",
    risk: "Nobody works on it until then, and a stream trims its data.",
  },
  reset: {
    verb: "Reset",
    done: "Reset",
    palette: "red",
    text: "Makes it start anew from the position below, whatever its state.",
    risk: "What was delivered after that position is delivered once more; what lies before it and is not delivered is passed over.",
  },
};

/**
 * The dialog of an action on partitions.
 *
 * @param {{place: Place, action: Action, rows: Row[], onClose: (done: boolean) => void}} props rows as they are shown
 *     now; while the dialog is open they may be refreshed. It is for those for which the action made sense when it opened
 */
export function ActionDialog({ place, action, rows, onClose }) {
  const { verb, done, palette, text, risk } = ACTIONS[action];
  const tell = useTell();
  // What it is for is settled when it opens: what changes then is told as such, and does not slip out of the order.
  const [seen, setSeen] = useState(() => rows.filter((row) => actionsFor(row).includes(action)));
  const [leftOut, setLeftOut] = useState(rows.length - seen.length);
  const became = useRef(/** @type {Api.ActionResult[]} */ ([]));
  const { give, ...order } = useOrder();
  const [results, setResults] = useState(/** @type {Api.ActionResult[]|null} */ (null));
  const [target, setTarget] = useState(EARLIEST);
  const latest = new Map(rows.map((row) => [row.partition_key, row]));
  const shown = seen.map((row) => laterOf(row, latest.get(row.partition_key)));

  const hasPositions = shown.every((row) => row.has_positions);

  /** @param {string} reason */
  const confirm = (reason) => {
    const asked = shown.map((row, at) => ({ key: row.partition_key, version: versionSeen(row, seen[at]) }));
    const to = action === "reset" ? { to: targetText(target) } : {};
    return give(async () => {
      try {
        for (const partitions of inRequests(asked)) {
          const body = { partitions, reason, ...to };
          const answer = await ask(sourceApi(place.connection, place.source, `partitions/${action}`), { body });
          became.current.push(...answer.results);
        }
      } catch (error) {
        // What was done is done: another try is for the rest.
        const tried = new Set(became.current.map((result) => result.key));
        setSeen(seen.filter((row) => !tried.has(row.partition_key)));
        throw error;
      }
      if (became.current.every((result) => result.outcome === "done")) {
        tell(`${done} ${plural(became.current.length, "partition")}.`);
        onClose(true);
        return;
      }
      setResults(became.current);
    });
  };
  const again = () => {
    const stale = (results ?? []).flatMap((result) =>
      result.outcome === "stale" && result.partition !== null ? [result.partition] : [],
    );
    became.current = [];
    setSeen(stale);
    setLeftOut(0);
    setResults(null);
  };
  const name = shown.length === 1 ? shown[0].partition_key : plural(shown.length, "partition");
  return h(
    ReasonDialog,
    {
      title: `${verb} ${name}?`,
      text:
        shown.length === 1
          ? text
          : text
              .replace("Ends the lease", "Ends their leases")
              .replace("Makes it", "Makes each")
              .replace("Puts it", "Puts each"),
      risk,
      verb,
      palette,
      ...order,
      isDone: results !== null,
      doneContent: results && h(Results, { results, done, again }),
      onConfirm: confirm,
      onClose: () => onClose(results !== null),
    },
    h(Listed, { rows: shown, leftOut }),
    action === "reset" &&
      (hasPositions
        ? h(TargetField, {
            target,
            // A number belongs to one partition.
            choices: ["earliest", "latest", "instant", ...(shown.length === 1 ? ["number"] : [])],
            onChange: setTarget,
          })
        : h(C.Text, { fontSize: "sm" }, "From its beginning: sources of this kind have no other positions.")),
  );
}

/** @param {{rows: Row[], leftOut: number}} props */
function Listed({ rows, leftOut }) {
  return h(
    C.Stack,
    {
      as: "ul",
      gap: 1,
      listStyleType: "none",
      borderWidth: 1,
      borderColor: "border",
      borderRadius: "md",
      p: 2,
      fontSize: "sm",
      "aria-label": "What it is done to",
    },
    ...rows
      .slice(0, LISTED)
      .map((row) =>
        h(
          C.Flex,
          { as: "li", key: row.partition_key, gap: 2, align: "center", minW: 0 },
          h(Chip, { state: row.state, size: "xs" }),
          h(Shortened, { text: row.partition_key, tail: 28 }),
        ),
      ),
    rows.length > LISTED && h(C.Text, { as: "li", color: "fg.muted" }, `and ${rows.length - LISTED} more`),
    leftOut > 0 &&
      h(
        C.Text,
        { as: "li", color: "fg.muted" },
        `Not to ${plural(leftOut, "other")} that you selected: it makes no sense there.`,
      ),
  );
}

/** @type {Record<string, [string, string]>} */
const OUTCOMES = {
  stale: ["Has changed since you looked: nothing was done", "orange"],
  refused: ["Refused", "red"],
  missing: ["Is not there any more", "gray"],
};

/** @param {{results: Api.ActionResult[], done: string, again: () => void}} props */
function Results({ results, done, again }) {
  const good = results.filter((result) => result.outcome === "done").length;
  const rest = results.filter((result) => result.outcome !== "done");
  const stale = rest.filter((result) => result.outcome === "stale" && result.partition !== null);
  return h(
    Outcomes,
    {
      title: `${done} ${good} of ${plural(results.length, "partition")}.`,
      items: rest.map((result) => ({
        key: result.key,
        palette: OUTCOMES[result.outcome][1],
        outcome: result.outcome,
        content: h(Result, { result }),
      })),
    },
    stale.length > 0 &&
      h(
        C.Button,
        { size: "sm", variant: "outline", alignSelf: "flex-start", type: "button", onClick: again },
        stale.length === 1 ? "Do it to it as it is now…" : `Do it to these ${stale.length} as they are now…`,
      ),
  );
}

/** @param {{result: Api.ActionResult}} props */
function Result({ result }) {
  return h(
    Fragment,
    null,
    h(C.Flex, { gap: 2, align: "center", minW: 0 }, h(Shortened, { text: result.key, tail: 28, fontWeight: "medium" })),
    h(C.Text, null, OUTCOMES[result.outcome][0], "."),
    h(C.Text, { color: "fg.muted" }, result.detail),
    result.partition &&
      h(
        C.Flex,
        { gap: 2, align: "center", mt: 1 },
        "Now:",
        h(Chip, { state: result.partition.state, size: "xs" }),
        result.partition.owner && h(Shortened, { text: result.partition.owner.name }),
      ),
  );
}

/**
 * The buttons for what may be done to these partitions.
 *
 * @param {{rows: Row[], connection: Api.ConnectionRow|null, onPick: (action: Action) => void}} props
 */
export function ActionButtons({ rows, connection, onPick }) {
  const possible = new Set(rows.flatMap((row) => actionsFor(row)));
  const orders = /** @type {Action[]} */ (Object.keys(ACTIONS))
    .filter((name) => possible.has(name))
    .map((name) => ({ name, verb: ACTIONS[name].verb, text: ACTIONS[name].text }));
  return h(Fragment, null, h(OrderButtons, { orders, connection, onPick }), h(LookOnly, { connection }));
}
