/** What a person may ask of a supervisor, or of all of a connection: each verb asks for a reason. */

import { ask } from "./api.js";
import { C, Fragment, h, useEffect, useRef, useState } from "./host.js";
import { sourceApi } from "./places.js";
import { ReasonDialog } from "./reason_dialog.js";
import { lookOnly } from "./rights.js";
import { positionsOf, specOf } from "./spec_changes.js";
import { verbsFor } from "./supervisor_states.js";
import { useTell } from "./telling.js";
import { plural } from "./texts.js";

/** @type {Record<SupervisorVerb, {verb: string, palette: string, text: string, risk: string, done: string}>} */
const VERBS = {
  submit: {
    verb: "Submit",
    palette: "brand",
    text: "Stores a new version of the spec. Where it changes what jobs do, they hand over to jobs of the new version without a gap.",
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
 * The buttons of the verbs that make sense now; those who may only look see them grey.
 *
 * @param {{
 *   place: Place, status: Api.SupervisorStatus|null, spec: Record<string, any>|null,
 *   connection: Api.ConnectionRow|null, refresh: () => void,
 * }} props `status` is null where there is no supervisor; `spec` is that which rules, or ruled last
 */
export function VerbButtons({ place, status, spec, connection, refresh }) {
  const [verb, setVerb] = useState(/** @type {SupervisorVerb|null} */ (null));
  const may = connection?.may_change ?? false;
  const verbs = status === null ? /** @type {SupervisorVerb[]} */ (["submit"]) : verbsFor(status);
  return h(
    Fragment,
    null,
    h(
      C.Flex,
      { gap: 2, wrap: "wrap", align: "center" },
      ...verbs.map((name) =>
        h(
          C.Button,
          {
            key: name,
            size: "xs",
            variant: "outline",
            disabled: !may,
            title: may ? VERBS[name].text : lookOnly(place.connection),
            "data-action": name,
            onClick: () => setVerb(name),
          },
          `${VERBS[name].verb}…`,
        ),
      ),
      connection !== null &&
        !may &&
        h(C.Text, { fontSize: "xs", color: "fg.muted", "data-look-only": true }, lookOnly(place.connection)),
    ),
    verb !== null &&
      h(VerbDialog, {
        verb,
        place,
        seen: status?.spec_version ?? null,
        spec,
        onClose: () => {
          setVerb(null);
          refresh();
        },
      }),
  );
}

/**
 * @param {{
 *   verb: SupervisorVerb, place: Place, seen: number|null, spec: Record<string, any>|null, onClose: () => void,
 * }} props `seen` is the version of the spec that the person saw
 */
function VerbDialog({ verb, place, seen, spec, onClose }) {
  const { palette, text, risk, done, verb: word } = VERBS[verb];
  const tell = useTell();
  // What it is about is settled when it opens.
  const [version] = useState(seen);
  const [written, setWritten] = useState(() => JSON.stringify(spec ?? {}, null, 2));
  const [target, setTarget] = useState({ name: "earliest", text: "" });
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {ProblemLike|null} */ (null));
  const [notes, setNotes] = useState(/** @type {string[]|null} */ (null));
  /** @param {string} reason */
  const confirm = async (reason) => {
    setBusy(true);
    setProblem(null);
    try {
      const path = verb === "submit" ? "supervisor" : `supervisor/${verb}`;
      const answer = await ask(sourceApi(place.connection, place.source, path), {
        body: { reason, ...bodyOf(verb, { written, target, version }) },
      });
      const notes = verb === "reset" ? notesOf(answer) : [];
      if (notes.length > 0) {
        setNotes(notes);
        return;
      }
      tell(verb === "submit" ? `Version ${answer.version} rules: ${answer.consequence}.` : done);
      onClose();
    } catch (error) {
      // What is no answer of the server is about what the person wrote.
      const kind = /** @type {Partial<ProblemLike>} */ (error).kind ?? "refused";
      setProblem({ kind, message: error instanceof Error ? error.message : String(error), status: null });
    } finally {
      setBusy(false);
    }
  };
  return h(
    ReasonDialog,
    {
      title: verb === "submit" ? `Submit a spec for ${place.source}?` : `${word} ${place.source}?`,
      text,
      risk,
      verb: word,
      palette,
      problem,
      isBusy,
      isDone: notes !== null,
      doneContent: notes !== null && h(Notes, { done, notes }),
      onConfirm: confirm,
      onClose,
      size: verb === "submit" ? "xl" : "md",
    },
    verb === "submit" && h(Spec, { written, onChange: setWritten }),
    verb === "reset" && h(Target, { target, onChange: setTarget }),
  );
}

/**
 * Return what a verb takes beside its reason.
 *
 * @param {SupervisorVerb} verb
 * @param {{written: string, target: ResetTarget, version: number|null}} given
 */
function bodyOf(verb, { written, target, version }) {
  if (verb === "submit") return { spec: specOf(written), ...(version === null ? {} : { replacing: version }) };
  if (verb !== "reset") return {};
  if (target.name === "positions") return { positions: positionsOf(target.text) };
  return { to: target.name === "instant" ? target.text.trim() : target.name };
}

/**
 * Return what a person should know of a reset that was made: what was not reset, and why.
 *
 * @param {Api.ResetFacts} answer
 */
function notesOf({ outcomes, left, warnings }) {
  return [
    ...warnings,
    ...outcomes.filter(({ error }) => error !== "").map(({ partition_key: key, error }) => `${key}: ${error}`),
    ...Object.entries(left).map(([key, why]) => `${key} stays as it is: ${why}`),
  ];
}

const LISTED = 20;

/** @param {{done: string, notes: string[]}} props */
function Notes({ done, notes }) {
  // What had the focus is gone: whoever hears the page goes on here.
  const top = useRef(/** @type {HTMLElement|null} */ (null));
  useEffect(() => top.current?.focus(), []);
  return h(
    C.Stack,
    { gap: 2, ref: top, tabIndex: -1, outline: "none", role: "status", fontSize: "sm" },
    h(C.Text, { fontWeight: "semibold" }, done),
    h(
      C.Stack,
      { as: "ul", gap: 1, ps: 4 },
      ...notes.slice(0, LISTED).map((note) => h(C.Text, { as: "li", key: note, overflowWrap: "anywhere" }, note)),
      notes.length > LISTED && h(C.Text, { as: "li", color: "fg.muted" }, `and ${notes.length - LISTED} more`),
    ),
  );
}

/** @param {{written: string, onChange: (text: string) => void}} props */
function Spec({ written, onChange }) {
  return h(
    C.Field.Root,
    { required: true },
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
  );
}

const TARGETS = [
  ["earliest", "The earliest that there is"],
  ["latest", "Now: only what comes from here on"],
  ["instant", "An instant"],
  ["positions", "Given positions of some partitions"],
];

/** @param {{target: ResetTarget, onChange: (target: ResetTarget) => void}} props */
function Target({ target, onChange }) {
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
          { value: target.name, onChange: (event) => onChange({ name: event.target.value, text: "" }) },
          ...TARGETS.map(([name, label]) => h("option", { key: name, value: name }, label)),
        ),
        h(C.NativeSelect.Indicator),
      ),
    ),
    target.name === "instant" &&
      h(
        C.Field.Root,
        { required: true },
        h(C.Field.Label, null, "Instant, with its time zone"),
        h(C.Input, {
          value: target.text,
          fontFamily: "mono",
          placeholder: "2026-01-31T00:00:00Z",
          onChange: (event) => onChange({ ...target, text: event.target.value }),
        }),
      ),
    target.name === "positions" &&
      h(
        C.Field.Root,
        { required: true },
        h(C.Field.Label, null, "A line each: partition, and position"),
        h(C.Textarea, {
          value: target.text,
          rows: 4,
          fontFamily: "mono",
          fontSize: "xs",
          spellCheck: false,
          dir: "ltr",
          placeholder: "shardId-000000000000 4959033827149025660855969253836157109592157",
          onChange: (event) => onChange({ ...target, text: event.target.value }),
        }),
      ),
  );
}

/** @type {Record<"suspend"|"resume"|"terminate", [string, string, string, string]>} verb, palette, text, risk */
const FOR_ALL = {
  suspend: [
    "Suspend all",
    "brand",
    "Suspends every source that has a supervisor: jobs deliver what they have in hand and end.",
    "Streams that stand still for longer than their retention lose data.",
  ],
  resume: ["Resume all", "brand", "Lets every suspended source that has a supervisor go on.", "None."],
  terminate: [
    "Terminate all",
    "red",
    "Ends supervision of every source: jobs deliver what they have read and end, and none is started.",
    "Streams that nobody reads for longer than their retention lose data.",
  ],
};

/**
 * The verbs for all supervisors of a connection.
 *
 * @param {{connection: Api.ConnectionRow, count: number, refresh: () => void}} props
 */
export function VerbsForAll({ connection, count, refresh }) {
  const [verb, setVerb] = useState(/** @type {keyof typeof FOR_ALL|null} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {ProblemLike|null} */ (null));
  const tell = useTell();
  const id = connection.connection_id;
  const close = () => {
    setVerb(null);
    setProblem(null);
    refresh();
  };
  /** @param {string} reason */
  const confirm = async (reason) => {
    setBusy(true);
    setProblem(null);
    try {
      const answer = await ask(`connections/${encodeURIComponent(id)}/supervisors/${verb}`, { body: { reason } });
      const { results } = /** @type {Api.VerbOutcomes} */ (answer);
      const done = results.filter((each) => each.is_done).length;
      const rest = done === results.length ? "" : "; the others stay as they are";
      tell(`Done for ${done} of ${plural(results.length, "supervisor")}${rest}.`);
      close();
    } catch (error) {
      setProblem(/** @type {ProblemLike} */ (error));
    } finally {
      setBusy(false);
    }
  };
  const [word, palette, text, risk] = verb === null ? ["", "", "", ""] : FOR_ALL[verb];
  return h(
    Fragment,
    null,
    h(
      C.Flex,
      { gap: 2, wrap: "wrap" },
      .../** @type {(keyof typeof FOR_ALL)[]} */ (Object.keys(FOR_ALL)).map((name) =>
        h(
          C.Button,
          {
            key: name,
            size: "2xs",
            variant: "outline",
            disabled: !connection.may_change,
            title: connection.may_change ? FOR_ALL[name][2] : lookOnly(id),
            "data-action": `${name}-all`,
            onClick: () => setVerb(name),
          },
          `${FOR_ALL[name][0]}…`,
        ),
      ),
    ),
    verb !== null &&
      h(ReasonDialog, {
        title: `${word}: ${plural(count, "supervisor")} of ${id}?`,
        text,
        risk,
        verb: word,
        palette,
        problem,
        isBusy,
        onConfirm: confirm,
        onClose: close,
      }),
  );
}
