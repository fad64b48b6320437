/** What a person may ask of a supervisor, or of all of a connection: each verb asks for a reason. */

import { ask } from "./api.js";
import { C, Fragment, h, useState } from "./host.js";
import { LookOnly, OrderButtons, Outcomes, useOrder } from "./action_widgets.js";
import { sourceApi } from "./urls.js";
import { ReasonDialog } from "./reason_dialog.js";
import { EARLIEST, TargetField, targetText } from "./reset_target.js";
import { NEW_SPEC, positionsOf, sourceOf, specOf } from "./spec_changes.js";
import { verbsFor } from "./supervisor_states.js";
import { useTell } from "./messages.js";
import { plural } from "./text.js";

/** @type {Record<SupervisorVerb, {verb: string, palette: string, text: string, risk: string, done: string}>} */
const VERBS = {
  submit: {
    verb: "Submit",
    palette: "brand",
    text: "Stores a new version of the spec, once the source was asked whether it fits. Where it changes what jobs do, they hand over to jobs of the new version without a gap.",
    risk: "A spec that is wrong is refused. One that comes from a file is replaced when that file is edited.",
    done: "The spec is stored.",
  },
  handover: {
    verb: "Hand over",
    palette: "brand",
    text: "Starts another job in place of each one. Once the new one runs, the old one delivers what it has read and ends.",
    risk: "None. For a while there are twice as many jobs.",
    done: "The jobs hand over.",
  },
  reset: {
    verb: "Reset",
    palette: "red",
    text: "Reads the source anew from the position below. Jobs go on, and take it up there.",
    risk: "What was delivered after that position is delivered once more; what lies before it and is not delivered is passed over.",
    done: "The source is reset.",
  },
  terminate: {
    verb: "Terminate",
    palette: "red",
    text: "Ends supervision: jobs deliver what they have read and end, and none is started until a spec is submitted.",
    risk: "A stream that nobody reads for longer than its retention loses data. Positions are kept.",
    done: "The supervisor is terminated.",
  },
};

/**
 * The buttons of the verbs that make sense now.
 *
 * @param {{
 *   place: Place, status: Api.SupervisorStatus|null, spec: Record<string, any>|null,
 *   connection: Api.ConnectionRow|null, refresh: () => void,
 * }} props `status` is null where there is no supervisor; `spec` is that which rules, or ruled last
 */
export function VerbButtons({ place, status, spec, connection, refresh }) {
  const [verb, setVerb] = useState(/** @type {SupervisorVerb|null} */ (null));
  const verbs = status === null ? /** @type {SupervisorVerb[]} */ (["submit"]) : verbsFor(status);
  return h(
    Fragment,
    null,
    h(OrderButtons, {
      orders: verbs.map((name) => ({ name, verb: VERBS[name].verb, text: VERBS[name].text })),
      connection,
      onPick: setVerb,
    }),
    h(LookOnly, { connection }),
    verb !== null &&
      h(VerbDialog, {
        verb,
        place,
        seen: status?.spec_version ?? null,
        spec: spec ?? { ...NEW_SPEC, source: place.source },
        onClose: () => {
          setVerb(null);
          refresh();
        },
      }),
  );
}

/**
 * @param {{
 *   verb: SupervisorVerb, place: {connection: string, source: string|null}, seen: number|null,
 *   spec: Record<string, any>, onClose: () => void,
 * }} props `seen` is the version of the spec that the person saw; the source is null where the spec names it
 */
function VerbDialog({ verb, place, seen, spec, onClose }) {
  const { palette, text, risk, done, verb: word } = VERBS[verb];
  const tell = useTell();
  const { give, ...order } = useOrder();
  // What it is about is settled when it opens.
  const [version] = useState(seen);
  const [written, setWritten] = useState(() => JSON.stringify(spec, null, 2));
  const [isAsked, setAsked] = useState(true);
  const [target, setTarget] = useState(EARLIEST);
  const [result, setResult] = useState(/** @type {{title: string, items: string[]}|null} */ (null));
  /** @param {string} reason */
  const onConfirm = (reason) =>
    give(async () => {
      const body = { reason, ...bodyOf(verb, { written, isAsked, target, version }) };
      const source = place.source ?? sourceOf(specOf(written));
      const path = verb === "submit" ? "supervisor" : `supervisor/${verb}`;
      const answer = await ask(sourceApi(place.connection, source, path), { body });
      const text = verb === "submit" ? `Version ${answer.version} of ${source} rules: ${answer.consequence}.` : done;
      const items = notesOf(verb, answer);
      if (items.length > 0) {
        setResult({ title: text, items });
        return;
      }
      tell(text);
      onClose();
    });
  return h(
    ReasonDialog,
    {
      title: verb === "submit" ? `Submit a spec${place.source === null ? "" : ` for ${place.source}`}?` : `${word} ${place.source}?`,
      text,
      risk,
      verb: word,
      palette,
      ...order,
      isDone: result !== null,
      doneContent:
        result !== null &&
        h(Outcomes, { title: result.title, items: result.items.map((note) => ({ key: note, content: note })) }),
      onConfirm,
      onClose,
      size: verb === "submit" ? "xl" : "md",
    },
    verb === "submit" && h(Spec, { written, isWrong: order.problem?.kind === "refused", onChange: setWritten, isAsked, onAsk: setAsked }),
    verb === "reset" &&
      h(TargetField, { target, choices: ["earliest", "latest", "instant", "positions"], onChange: setTarget }),
  );
}

/**
 * Return what a verb takes beside its reason.
 *
 * @param {SupervisorVerb} verb
 * @param {{written: string, isAsked: boolean, target: ResetTarget, version: number|null}} given
 */
function bodyOf(verb, { written, isAsked, target, version }) {
  if (verb === "submit")
    return { spec: specOf(written), connect: isAsked, ...(version === null ? {} : { replacing: version }) };
  if (verb !== "reset") return {};
  return target.name === "positions" ? { positions: positionsOf(target.text) } : { to: targetText(target) };
}

/**
 * Return what a person should know of what was done: what is to be watched, and what was not reset, and why.
 *
 * @param {SupervisorVerb} verb
 * @param {any} answer
 * @returns {string[]}
 */
function notesOf(verb, answer) {
  if (verb === "submit") return /** @type {Api.SubmissionFacts} */ (answer).warnings;
  if (verb !== "reset") return [];
  const { outcomes, left, warnings } = /** @type {Api.ResetFacts} */ (answer);
  return [
    ...warnings,
    ...outcomes.filter(({ error }) => error !== "").map(({ partition_key: key, error }) => `${key}: ${error}`),
    ...Object.entries(left).map(([key, why]) => `${key} stays as it is: ${why}`),
  ];
}

/**
 * @param {{
 *   written: string, isWrong: boolean, onChange: (text: string) => void, isAsked: boolean,
 *   onAsk: (isAsked: boolean) => void,
 * }} props
 */
function Spec({ written, isWrong, onChange, isAsked, onAsk }) {
  return h(
    Fragment,
    null,
    h(
      C.Field.Root,
      { required: true, invalid: isWrong },
      h(C.Field.Label, null, "Spec, as JSON"),
      h(C.Textarea, {
        value: written,
        rows: 16,
        fontFamily: "mono",
        fontSize: "xs",
        spellCheck: false,
        dir: "ltr",
        onChange: (event) => onChange(event.target.value),
      }),
    ),
    h(
      C.Flex,
      { as: "label", gap: 2, align: "center", fontSize: "sm" },
      h("input", {
        type: "checkbox",
        checked: isAsked,
        onChange: (/** @type {ReactChangeEvent} */ event) => onAsk(event.target.checked),
      }),
      "Ask the source first whether the spec fits it",
    ),
  );
}

/** @type {Record<VerbForAll, {verb: string, palette?: string, text: string, risk: string}>} */
const FOR_ALL = {
  suspend: {
    verb: "Suspend all",
    text: "Suspends every source that has a supervisor: jobs deliver what they have in hand and end.",
    risk: "Streams that stand still for longer than their retention lose data.",
  },
  resume: {
    verb: "Resume all",
    text: "Lets every suspended source that has a supervisor go on.",
    risk: "None.",
  },
  handover: {
    verb: "Hand over all",
    text: "Starts another job in place of each one of every supervisor; the old ones deliver what they have read, and end.",
    risk: "None. For a while there are twice as many jobs, of all sources.",
  },
  reset: {
    verb: "Reset all",
    palette: "red",
    text: "Reads every source that has a supervisor anew from the position below.",
    risk: VERBS.reset.risk,
  },
  terminate: {
    verb: "Terminate all",
    palette: "red",
    text: "Ends supervision of every source: jobs deliver what they have read and end, and none is started.",
    risk: "Streams that nobody reads for longer than their retention lose data.",
  },
};

/**
 * The verbs for all supervisors of a connection, and for a source that has none yet.
 *
 * @param {{connection: Api.ConnectionRow, count: number, refresh: () => void}} props
 */
export function VerbsForAll({ connection, count, refresh }) {
  const [verb, setVerb] = useState(/** @type {VerbForAll|"submit"|null} */ (null));
  const names = count === 0 ? [] : /** @type {VerbForAll[]} */ (Object.keys(FOR_ALL));
  const onClose = () => {
    setVerb(null);
    refresh();
  };
  return h(
    Fragment,
    null,
    h(OrderButtons, {
      orders: [
        { name: "submit", verb: "Submit a spec", text: "Begins to supervise a source that has no supervisor yet." },
        ...names.map((name) => ({ name: `${name}-all`, verb: FOR_ALL[name].verb, text: FOR_ALL[name].text })),
      ],
      connection,
      onPick: (name) => setVerb(name.replace("-all", "")),
      size: "2xs",
    }),
    verb === "submit" &&
      h(VerbDialog, {
        verb,
        place: { connection: connection.connection_id, source: null },
        seen: null,
        spec: NEW_SPEC,
        onClose,
      }),
    verb !== null && verb !== "submit" && h(ForAllDialog, { verb, connection: connection.connection_id, count, onClose }),
  );
}

/**
 * @param {{verb: VerbForAll, connection: string, count: number, onClose: () => void}} props
 */
function ForAllDialog({ verb, connection, count, onClose }) {
  const { verb: word, palette, text, risk } = FOR_ALL[verb];
  const { give, ...order } = useOrder();
  const tell = useTell();
  const [target, setTarget] = useState(EARLIEST);
  const [results, setResults] = useState(/** @type {Api.VerbOutcomeFacts[]|null} */ (null));
  const left = (results ?? []).filter((each) => !each.is_done);
  /** @param {Api.VerbOutcomeFacts[]} found */
  const doneFor = (found) => `Done for ${found.filter((each) => each.is_done).length} of ${plural(found.length, "supervisor")}.`;
  /** @param {string} reason */
  const onConfirm = (reason) =>
    give(async () => {
      const body = verb === "reset" ? { reason, to: targetText(target) } : { reason };
      const answer = await ask(`connections/${encodeURIComponent(connection)}/supervisors/${verb}`, { body });
      const found = /** @type {Api.VerbOutcomes} */ (answer).results;
      if (found.some((each) => !each.is_done)) {
        setResults(found);
        return;
      }
      tell(doneFor(found));
      onClose();
    });
  return h(
    ReasonDialog,
    {
      title: `${word}: ${plural(count, "supervisor")} of ${connection}?`,
      text,
      risk,
      verb: word,
      palette,
      ...order,
      isDone: results !== null,
      doneContent:
        results !== null &&
        h(Outcomes, {
          title: `${doneFor(results)} The others stay as they are.`,
          items: left.map(({ source, detail, has_failed: hasFailed }) => ({
            key: source,
            palette: hasFailed ? "red" : "gray",
            content: h(
              Fragment,
              null,
              h(C.Text, { fontWeight: "medium" }, source),
              h(C.Text, { color: "fg.muted" }, detail),
            ),
          })),
        }),
      onConfirm,
      onClose,
    },
    verb === "reset" && h(TargetField, { target, choices: ["earliest", "latest", "instant"], onChange: setTarget }),
  );
}
