/** Actions on partitions. Each one names the versions that the user saw, and shows the outcome for each partition. */

import { request } from "./api.js";
import { C, Fragment, h, useRef, useState } from "./host.js";
import { requestGroups, laterVersion, versionToSend } from "./action_requests.js";
import { ReadOnlyNote, ActionButtons, Outcomes, useAction } from "./action_widgets.js";
import { Chip, Shortened } from "./widgets.js";
import { sourceApi } from "./urls.js";
import { ReasonDialog } from "./reason_dialog.js";
import { EARLIEST, TargetField, targetText } from "./reset_target.js";
import { useActionNamed, useActions } from "./user_actions.js";
import { useMessage } from "./messages.js";
import { capitalized, plural } from "./text.js";

const LISTED = 6;

/**
 * The dialog of an action on partitions.
 *
 * @param {{place: Place, action: string, rows: Row[], onClose: (done: boolean) => void}} props rows as they are shown
 *     now; they may be refreshed while the dialog is open. The action applies to those that allowed it when it opened
 */
export function ActionDialog({ place, action, rows, onClose }) {
  const { label, palette, text, text_for_many: textForMany, risk, ...described } = useActionNamed("partitions", action);
  const done = capitalized(described.done);
  const showMessage = useMessage();
  // The partitions are fixed when the dialog opens. A later change is reported as stale, and removes none of them.
  const [selected, setSelected] = useState(() => rows.filter((row) => row.actions.includes(action)));
  const [leftOut, setLeftOut] = useState(rows.length - selected.length);
  const outcomes = useRef(/** @type {Api.ActionResult[]} */ ([]));
  const { run, ...attempt } = useAction();
  const [results, setResults] = useState(/** @type {Api.ActionResult[]|null} */ (null));
  const [target, setTarget] = useState(EARLIEST);
  const latest = new Map(rows.map((row) => [row.partition_key, row]));
  const shown = selected.map((row) => laterVersion(row, latest.get(row.partition_key)));

  const hasPositions = shown.every((row) => row.has_positions);

  /** @param {string} reason */
  const confirm = (reason) => {
    const requested = shown.map((row, at) => ({ key: row.partition_key, version: versionToSend(row, selected[at]) }));
    const to = action === "reset" ? { to: targetText(target) } : {};
    return run(async () => {
      try {
        for (const partitions of requestGroups(requested)) {
          const body = { partitions, reason, ...to };
          const response = await request(sourceApi(place.connection, place.source, `partitions/${action}`), { body });
          outcomes.current.push(...response.results);
        }
      } catch (error) {
        // Another attempt is only for the rest.
        const tried = new Set(outcomes.current.map((result) => result.key));
        setSelected(selected.filter((row) => !tried.has(row.partition_key)));
        throw error;
      }
      if (outcomes.current.every((result) => result.outcome === "done")) {
        showMessage(`${done} ${plural(outcomes.current.length, "partition")}.`);
        onClose(true);
        return;
      }
      setResults(outcomes.current);
    });
  };
  const again = () => {
    const stale = (results ?? []).flatMap((result) =>
      result.outcome === "stale" && result.partition !== null ? [result.partition] : [],
    );
    outcomes.current = [];
    setSelected(stale);
    setLeftOut(0);
    setResults(null);
  };
  const name = shown.length === 1 ? shown[0].partition_key : plural(shown.length, "partition");
  return h(
    ReasonDialog,
    {
      title: `${label} ${name}?`,
      text: shown.length === 1 ? text : textForMany,
      risk,
      verb: label,
      palette,
      ...attempt,
      isDone: results !== null,
      doneContent: results && h(Results, { results, done, again }),
      onConfirm: confirm,
      onClose: () => onClose(results !== null),
    },
    h(AffectedPartitions, { rows: shown, leftOut }),
    action === "reset" &&
      (hasPositions
        ? h(TargetField, {
            target,
            // A number belongs to one partition.
            choices: ["earliest", "latest", "instant", ...(shown.length === 1 ? ["number"] : [])],
            onChange: setTarget,
          })
        : h(C.Text, { fontSize: "sm" }, "From the start: sources of this kind have no other positions.")),
  );
}

/** @param {{rows: Row[], leftOut: number}} props */
function AffectedPartitions({ rows, leftOut }) {
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
      "aria-label": "Affected partitions",
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
        `${plural(leftOut, "other selected partition is", "other selected partitions are")} left out: the action does not apply to them.`,
      ),
  );
}

/** @type {Record<string, [string, string]>} */
const OUTCOMES = {
  stale: ["It has changed since you opened the dialog. Nothing was done", "orange"],
  refused: ["Refused", "red"],
  missing: ["It no longer exists", "gray"],
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
        stale.length === 1 ? "Try again with its current state…" : `Try again with the current state of these ${stale.length}…`,
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
        "Current state:",
        h(Chip, { state: result.partition.state, size: "xs" }),
        result.partition.owner && h(Shortened, { text: result.partition.owner.name }),
      ),
  );
}

/**
 * The buttons of the actions that apply to these partitions.
 *
 * @param {{rows: Row[], connection: Api.ConnectionRow|null, onPick: (action: string) => void}} props
 */
export function PartitionActionButtons({ rows, connection, onPick }) {
  const possible = new Set(rows.flatMap((row) => row.actions));
  const actions = useActions("partitions")
    .filter(({ name }) => possible.has(name))
    .map(({ name, label, text }) => ({ name, verb: label, text }));
  return h(Fragment, null, h(ActionButtons, { actions, connection, onPick }), h(ReadOnlyNote, { connection }));
}
