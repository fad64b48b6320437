/** Actions on a supervisor, or on all supervisors of a connection. Each one needs a reason. */

import { request } from "./api.js";
import { C, Fragment, h, useState } from "./host.js";
import { ReadOnlyNote, ActionButtons, Outcomes, useAction } from "./action_widgets.js";
import { sourceApi } from "./urls.js";
import { ReasonDialog } from "./reason_dialog.js";
import { EARLIEST, TargetField, targetText } from "./reset_target.js";
import { NEW_SPEC, positionsOf, sourceOf, specOf } from "./spec_changes.js";
import { verbsFor } from "./supervisor_states.js";
import { useMessage } from "./messages.js";
import { plural } from "./text.js";

/** @type {Record<SupervisorVerb, {verb: string, palette: string, text: string, risk: string, done: string}>} */
const VERBS = {
  submit: {
    verb: "Submit",
    palette: "brand",
    text: "Checks the spec against the source, then stores it as a new version. If it changes what jobs do, they hand over to jobs of the new version without a gap.",
    risk: "An invalid spec is refused. If the spec comes from a file, the next edit of the file replaces this version.",
    done: "The spec is stored.",
  },
  handover: {
    verb: "Hand over",
    palette: "brand",
    text: "Starts a new job for each running one. Once the new job runs, the old one delivers what it has read and ends.",
    risk: "None. For a while, twice as many jobs run.",
    done: "The jobs are handing over.",
  },
  reset: {
    verb: "Reset",
    palette: "red",
    text: "Restarts the source at the position below. Running jobs continue there.",
    risk: "Data after that position is delivered again. Undelivered data before it is skipped.",
    done: "The source is reset.",
  },
  terminate: {
    verb: "Terminate",
    palette: "red",
    text: "Ends supervision: jobs deliver what they have read and end. No job is started until a spec is submitted.",
    risk: "A stream that is not read for longer than its retention loses data. Positions are kept.",
    done: "The supervisor is terminated.",
  },
};

/**
 * The buttons of the actions that apply now.
 *
 * @param {{
 *   place: Place, status: Api.SupervisorStatus|null, spec: Record<string, any>|null,
 *   connection: Api.ConnectionRow|null, refresh: () => void,
 * }} props `status` is null if there is no supervisor; `spec` is the one in effect, or the last one
 */
export function VerbButtons({ place, status, spec, connection, refresh }) {
  const [verb, setVerb] = useState(/** @type {SupervisorVerb|null} */ (null));
  const verbs = status === null ? /** @type {SupervisorVerb[]} */ (["submit"]) : verbsFor(status);
  return h(
    Fragment,
    null,
    h(ActionButtons, {
      actions: verbs.map((name) => ({ name, verb: VERBS[name].verb, text: VERBS[name].text })),
      connection,
      onPick: setVerb,
    }),
    h(ReadOnlyNote, { connection }),
    verb !== null &&
      h(VerbDialog, {
        verb,
        place,
        seenVersion: status?.spec_version ?? null,
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
 *   verb: SupervisorVerb, place: {connection: string, source: string|null}, seenVersion: number|null,
 *   spec: Record<string, any>, onClose: () => void,
 * }} props `seenVersion` is the version of the spec that the user saw; the source is null if the spec names it
 */
function VerbDialog({ verb, place, seenVersion, spec, onClose }) {
  const { palette, text, risk, done, verb: word } = VERBS[verb];
  const showMessage = useMessage();
  const { run, ...attempt } = useAction();
  // The version is fixed when the dialog opens.
  const [version] = useState(seenVersion);
  const [written, setWritten] = useState(() => JSON.stringify(spec, null, 2));
  const [isChecked, setChecked] = useState(true);
  const [target, setTarget] = useState(EARLIEST);
  const [result, setResult] = useState(/** @type {{title: string, items: string[]}|null} */ (null));
  /** @param {string} reason */
  const onConfirm = (reason) =>
    run(async () => {
      const body = { reason, ...bodyOf(verb, { written, isChecked, target, version }) };
      const source = place.source ?? sourceOf(specOf(written));
      const path = verb === "submit" ? "supervisor" : `supervisor/${verb}`;
      const response = await request(sourceApi(place.connection, source, path), { body });
      const text = verb === "submit" ? `Version ${response.version} of ${source} is in effect: ${response.consequence}.` : done;
      const items = notesOf(verb, response);
      if (items.length > 0) {
        setResult({ title: text, items });
        return;
      }
      showMessage(text);
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
      ...attempt,
      isDone: result !== null,
      doneContent:
        result !== null &&
        h(Outcomes, { title: result.title, items: result.items.map((note) => ({ key: note, content: note })) }),
      onConfirm,
      onClose,
      size: verb === "submit" ? "xl" : "md",
    },
    verb === "submit" && h(Spec, { written, isWrong: attempt.problem?.kind === "refused", onChange: setWritten, isChecked, onCheck: setChecked }),
    verb === "reset" &&
      h(TargetField, { target, choices: ["earliest", "latest", "instant", "positions"], onChange: setTarget }),
  );
}

/**
 * Return the body of an action without its reason.
 *
 * @param {SupervisorVerb} verb
 * @param {{written: string, isChecked: boolean, target: ResetTarget, version: number|null}} given
 */
function bodyOf(verb, { written, isChecked, target, version }) {
  if (verb === "submit")
    return { spec: specOf(written), connect: isChecked, ...(version === null ? {} : { replacing: version }) };
  if (verb !== "reset") return {};
  return target.name === "positions" ? { positions: positionsOf(target.text) } : { to: targetText(target) };
}

/**
 * Return notes about the outcome: warnings, and the partitions that were not reset, and why.
 *
 * @param {SupervisorVerb} verb
 * @param {any} response
 * @returns {string[]}
 */
function notesOf(verb, response) {
  if (verb === "submit") return /** @type {Api.SubmissionFacts} */ (response).warnings;
  if (verb !== "reset") return [];
  const { outcomes, unchanged, warnings } = /** @type {Api.ResetFacts} */ (response);
  return [
    ...warnings,
    ...outcomes.filter(({ error }) => error !== "").map(({ partition_key: key, error }) => `${key}: ${error}`),
    ...Object.entries(unchanged).map(([key, why]) => `${key} is unchanged: ${why}`),
  ];
}

/**
 * @param {{
 *   written: string, isWrong: boolean, onChange: (text: string) => void, isChecked: boolean,
 *   onCheck: (isChecked: boolean) => void,
 * }} props
 */
function Spec({ written, isWrong, onChange, isChecked, onCheck }) {
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
        checked: isChecked,
        onChange: (/** @type {ReactChangeEvent} */ event) => onCheck(event.target.checked),
      }),
      "Check the spec against the source first",
    ),
  );
}

/** @type {Record<VerbForAll, {verb: string, palette?: string, text: string, risk: string}>} */
const FOR_ALL = {
  suspend: {
    verb: "Suspend all",
    text: "Suspends every source that has a supervisor: jobs deliver what they have read and end.",
    risk: "Streams that are not read for longer than their retention lose data.",
  },
  resume: {
    verb: "Resume all",
    text: "Resumes every suspended source that has a supervisor.",
    risk: "None.",
  },
  handover: {
    verb: "Hand over all",
    text: "Starts a new job for each running job of every supervisor. The old jobs deliver what they have read and end.",
    risk: "None. For a while, twice as many jobs of all sources run.",
  },
  reset: {
    verb: "Reset all",
    palette: "red",
    text: "Restarts every source that has a supervisor at the position below.",
    risk: VERBS.reset.risk,
  },
  terminate: {
    verb: "Terminate all",
    palette: "red",
    text: "Ends supervision of every source: jobs deliver what they have read and end, and no job is started.",
    risk: "Streams that are not read for longer than their retention lose data. Positions are kept.",
  },
};

/**
 * The actions on all supervisors of a connection, and on a source that has none yet.
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
    h(ActionButtons, {
      actions: [
        { name: "submit", verb: "Submit a spec", text: "Starts to supervise a source that has no supervisor yet." },
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
        seenVersion: null,
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
  const { run, ...attempt } = useAction();
  const showMessage = useMessage();
  const [target, setTarget] = useState(EARLIEST);
  const [results, setResults] = useState(/** @type {Api.VerbOutcome[]|null} */ (null));
  const left = (results ?? []).filter((each) => !each.is_done);
  /** @param {Api.VerbOutcome[]} found */
  const doneFor = (found) => `Done for ${found.filter((each) => each.is_done).length} of ${plural(found.length, "supervisor")}.`;
  /** @param {string} reason */
  const onConfirm = (reason) =>
    run(async () => {
      const body = verb === "reset" ? { reason, to: targetText(target) } : { reason };
      const response = await request(`connections/${encodeURIComponent(connection)}/supervisors/${verb}`, { body });
      const found = /** @type {Api.VerbOutcomes} */ (response).results;
      if (found.some((each) => !each.is_done)) {
        setResults(found);
        return;
      }
      showMessage(doneFor(found));
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
      ...attempt,
      isDone: results !== null,
      doneContent:
        results !== null &&
        h(Outcomes, {
          title: `${doneFor(results)} The others are unchanged.`,
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
