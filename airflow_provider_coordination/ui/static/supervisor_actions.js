/** Actions on a supervisor, or on all supervisors of a connection. Each one needs a reason. */

import { request } from "./api.js";
import { C, Fragment, h, useState } from "./host.js";
import { ReadOnlyNote, ActionButtons, Outcomes, useAction } from "./action_widgets.js";
import { sourceApi } from "./urls.js";
import { ReasonDialog } from "./reason_dialog.js";
import { EARLIEST, TargetField, targetText } from "./reset_target.js";
import { NEW_SPEC, positionsOf, sourceOf, specOf } from "./spec_changes.js";
import { useActionNamed, useActions } from "./user_actions.js";
import { useMessage } from "./messages.js";
import { plural } from "./text.js";

/** Actions on the source of a supervisor: their button is in the page's head. */
const OF_SOURCE = ["suspend", "resume"];

/**
 * The buttons of the actions that apply now.
 *
 * @param {{
 *   place: Place, status: Api.SupervisorWithVerbs|null, spec: Record<string, any>|null,
 *   connection: Api.ConnectionRow|null, refresh: () => void,
 * }} props `status` is null if there is no supervisor; `spec` is the one in effect, or the last one
 */
export function VerbButtons({ place, status, spec, connection, refresh }) {
  const [verb, setVerb] = useState(/** @type {string|null} */ (null));
  const possible = status === null ? ["submit"] : status.verbs;
  const verbs = useActions("supervisors").filter(({ name }) => possible.includes(name) && !OF_SOURCE.includes(name));
  return h(
    Fragment,
    null,
    h(ActionButtons, {
      actions: verbs.map(({ name, label, text }) => ({ name, verb: label, text })),
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
 *   verb: string, place: {connection: string, source: string|null}, seenVersion: number|null,
 *   spec: Record<string, any>, onClose: () => void,
 * }} props `seenVersion` is the version of the spec that the user saw; the source is null if the spec names it
 */
function VerbDialog({ verb, place, seenVersion, spec, onClose }) {
  const { palette, text, risk, done, label } = useActionNamed("supervisors", verb);
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
      const text = verb === "submit" ? `Version ${response.version} of ${source} is in effect: ${response.consequence}.` : `${source} is ${done}.`;
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
      title: verb === "submit" ? `Submit a spec${place.source === null ? "" : ` for ${place.source}`}?` : `${label} ${place.source}?`,
      text,
      risk,
      verb: label,
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
 * @param {string} verb
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
 * @param {string} verb
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

/**
 * The actions on all supervisors of a connection, and on a source that has none yet.
 *
 * @param {{connection: Api.ConnectionRow, count: number, refresh: () => void}} props
 */
export function VerbsForAll({ connection, count, refresh }) {
  const [verb, setVerb] = useState(/** @type {string|null} */ (null));
  const verbs = useActions("supervisors").filter((each) => count > 0 && each.text_for_many !== "");
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
        ...verbs.map(({ name, label, text_for_many: text }) => ({ name: `${name}-all`, verb: `${label} all`, text })),
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
 * @param {{verb: string, connection: string, count: number, onClose: () => void}} props
 */
function ForAllDialog({ verb, connection, count, onClose }) {
  const { label, palette, text_for_many: text, risk } = useActionNamed("supervisors", verb);
  const word = `${label} all`;
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
