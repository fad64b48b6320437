/**
 * What a person may order: each action asks for a reason, is done to what the person saw, and says what became of it.
 */

import { ask } from "./api.js";
import { C, Fragment, h, useEffect, useRef, useState } from "./host.js";
import { inRequests, laterOf, versionSeen } from "./ordering.js";
import { Chip, Shortened } from "./pieces.js";
import { sourceApi } from "./places.js";
import { ReasonDialog } from "./reason_dialog.js";
import { lookOnly } from "./rights.js";
import { actionsFor } from "./states.js";
import { useTell } from "./telling.js";
import { plural } from "./texts.js";

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
    risk: "Nobody works on it meanwhile, and a stream trims its data.",
  },
  reset: {
    verb: "Reset",
    done: "Reset",
    palette: "red",
    text: "Makes it start anew from the position below, whatever its state.",
    risk: "What was delivered after that position is delivered once more; what lies before it and is not delivered is passed over.",
  },
};

const TARGETS = [
  ["earliest", "The earliest that there is"],
  ["latest", "Now: only what comes from here on"],
  ["instant", "An instant"],
  ["number", "After a sequence number"],
];

/**
 * Where a reset begins.
 *
 * @param {{
 *   target: ResetTarget, hasPositions: boolean, isOne: boolean, onChange: (target: ResetTarget) => void,
 * }} props some
 *     kinds of sources have positions, and a number belongs to one partition
 */
function Target({ target, hasPositions, isOne, onChange }) {
  if (!hasPositions)
    return h(C.Text, { fontSize: "sm" }, "From its beginning: sources of this kind have no other positions.");
  const choices = TARGETS.filter(([name]) => isOne || name !== "number");
  const isGiven = target.name === "instant" || target.name === "number";
  return h(
    C.Stack,
    { gap: 2 },
    h(
      C.Field.Root,
      null,
      h(C.Field.Label, null, "Read from"),
      h(
        C.NativeSelect.Root,
        null,
        h(
          C.NativeSelect.Field,
          { value: target.name, onChange: (event) => onChange({ ...target, name: event.target.value }) },
          ...choices.map(([name, label]) => h("option", { key: name, value: name }, label)),
        ),
        h(C.NativeSelect.Indicator),
      ),
    ),
    isGiven &&
      h(
        C.Field.Root,
        { required: true },
        h(C.Field.Label, null, target.name === "instant" ? "Instant, with its time zone" : "Sequence number"),
        h(C.Input, {
          value: target.text,
          fontFamily: "mono",
          placeholder:
            target.name === "instant" ? "2026-01-31T00:00:00Z" : "4959033827149025660855969253836157109592157",
          onChange: (event) => onChange({ ...target, text: event.target.value }),
        }),
      ),
  );
}

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
  const [problem, setProblem] = useState(/** @type {ProblemLike|null} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [results, setResults] = useState(/** @type {Api.ActionResult[]|null} */ (null));
  const [target, setTarget] = useState({ name: "earliest", text: "" });
  const latest = new Map(rows.map((row) => [row.partition_key, row]));
  const shown = seen.map((row) => laterOf(row, latest.get(row.partition_key)));

  /** @param {string} reason */
  const confirm = async (reason) => {
    setBusy(true);
    setProblem(null);
    const to = target.name === "instant" || target.name === "number" ? target.text.trim() : target.name;
    const asked = shown.map((row, at) => ({ key: row.partition_key, version: versionSeen(row, seen[at]) }));
    try {
      for (const partitions of inRequests(asked)) {
        const body = { partitions, reason, ...(action === "reset" ? { to } : {}) };
        const answer = await ask(sourceApi(place.connection, place.source, `partitions/${action}`), { body });
        became.current.push(...answer.results);
      }
      if (became.current.every((result) => result.outcome === "done")) {
        tell(`${done} ${plural(became.current.length, "partition")}.`);
        onClose(true);
        return;
      }
      setResults(became.current);
    } catch (error) {
      // What was done is done: another try is for the rest.
      const told = new Set(became.current.map((result) => result.key));
      setSeen(seen.filter((row) => !told.has(row.partition_key)));
      setProblem(/** @type {ProblemLike} */ (error));
    } finally {
      setBusy(false);
    }
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
      problem,
      isBusy,
      isDone: results !== null,
      doneContent: results && h(Results, { results, done, again }),
      onConfirm: confirm,
      onClose: () => onClose(results !== null),
    },
    h(Listed, { rows: shown, leftOut }),
    action === "reset" &&
      h(Target, {
        target,
        hasPositions: shown.every((row) => row.has_positions),
        isOne: shown.length === 1,
        onChange: setTarget,
      }),
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
  // What had the focus is gone: whoever hears the page goes on here.
  const top = useRef(/** @type {HTMLElement|null} */ (null));
  useEffect(() => top.current?.focus(), []);
  return h(
    C.Stack,
    { gap: 3, ref: top, tabIndex: -1, outline: "none", role: "status", "data-results": true },
    h(C.Text, { fontWeight: "semibold" }, `${done} ${good} of ${plural(results.length, "partition")}.`),
    h(
      C.Stack,
      { as: "ul", gap: 2, listStyleType: "none", fontSize: "sm" },
      ...rest.slice(0, 20).map((result) =>
        h(
          C.Box,
          {
            as: "li",
            key: result.key,
            borderStartWidth: 3,
            borderColor: `${OUTCOMES[result.outcome][1]}.solid`,
            ps: 2,
            "data-outcome": result.outcome,
          },
          h(
            C.Flex,
            { gap: 2, align: "center", minW: 0 },
            h(Shortened, { text: result.key, tail: 28, fontWeight: "medium" }),
          ),
          h(C.Text, null, OUTCOMES[result.outcome][0], "."),
          h(C.Text, { color: "fg.muted", overflowWrap: "anywhere" }, result.detail),
          result.partition &&
            h(
              C.Flex,
              { gap: 2, align: "center", mt: 1 },
              "Now:",
              h(Chip, { state: result.partition.state, size: "xs" }),
              result.partition.owner && h(Shortened, { text: result.partition.owner.name }),
            ),
        ),
      ),
      rest.length > 20 && h(C.Text, { as: "li", color: "fg.muted" }, `and ${rest.length - 20} more`),
    ),
    stale.length > 0 &&
      h(
        C.Button,
        { size: "sm", variant: "outline", alignSelf: "flex-start", type: "button", onClick: again },
        stale.length === 1 ? "Do it to it as it is now…" : `Do it to these ${stale.length} as they are now…`,
      ),
  );
}

/**
 * The buttons for what may be done to these partitions; those who may only look are told so.
 *
 * @param {{
 *   rows: Row[], connection: Api.ConnectionRow|null, place: Place, onPick: (action: Action) => void, size?: string,
 * }} props
 */
export function ActionButtons({ rows, connection, place, onPick, size = "xs" }) {
  const may = connection?.may_change ?? false;
  const possible = new Set(rows.flatMap((row) => actionsFor(row)));
  return h(
    Fragment,
    null,
    .../** @type {Action[]} */ (Object.keys(ACTIONS))
      .filter((name) => possible.has(name))
      .map((name) =>
        h(
          C.Button,
          {
            key: name,
            size,
            variant: "outline",
            disabled: !may,
            title: may ? ACTIONS[name].text : lookOnly(place.connection),
            "data-action": name,
            onClick: () => onPick(name),
          },
          `${ACTIONS[name].verb}…`,
        ),
      ),
    connection !== null &&
      !may &&
      h(C.Text, { fontSize: "xs", color: "fg.muted", "data-look-only": true }, lookOnly(place.connection)),
  );
}

/**
 * Suspends or resumes a source.
 *
 * @param {{place: Place, card: Api.SourceCard, connection: Api.ConnectionRow|null, refresh: () => void}} props
 */
export function SuspendButton({ place, card, connection, refresh }) {
  // What the dialog is about is settled when it opens, whatever somebody else does meanwhile: `{suspended}`.
  const [asked, setAsked] = useState(/** @type {{suspended: Api.SuspensionFacts|null}|null} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {ProblemLike|null} */ (null));
  const tell = useTell();
  const may = connection?.may_change ?? false;
  const verb = verbOf(card.suspended);
  const close = () => {
    setAsked(null);
    setProblem(null);
  };
  /** @param {string} reason */
  const confirm = async (reason) => {
    if (asked === null) return;
    const { suspended } = asked;
    setBusy(true);
    setProblem(null);
    try {
      await ask(sourceApi(place.connection, place.source, suspended === null ? "suspend" : "resume"), {
        body: suspended === null ? { reason } : { reason, since: suspended.since },
      });
      tell(suspended === null ? `${place.source} is suspended.` : `${place.source} goes on.`);
      close();
    } catch (error) {
      setProblem(/** @type {ProblemLike} */ (error));
    } finally {
      setBusy(false);
      refresh();
    }
  };
  return h(
    Fragment,
    null,
    h(
      C.Button,
      {
        size: "xs",
        variant: "outline",
        disabled: !may,
        title: may ? undefined : lookOnly(place.connection),
        "data-action": verb.toLowerCase(),
        onClick: () => setAsked({ suspended: card.suspended }),
      },
      `${verb}…`,
    ),
    asked !== null &&
      h(ReasonDialog, {
        title: `${verbOf(asked.suspended)} ${place.source}?`,
        text:
          asked.suspended === null
            ? "No partition is taken and no work is looked for until somebody resumes it. Jobs deliver what they have in hand, give their leases back and end; sensors go on waiting."
            : "Partitions are taken again, and work is looked for again.",
        risk:
          asked.suspended === null ? "A stream that stands still for longer than its retention loses data." : "None.",
        verb: verbOf(asked.suspended),
        palette: "brand",
        problem,
        isBusy,
        onConfirm: confirm,
        onClose: close,
      }),
  );
}

/** @param {Api.SuspensionFacts|null} suspended */
function verbOf(suspended) {
  return suspended === null ? "Suspend" : "Resume";
}
