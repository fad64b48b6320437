/** Actions on a supervisor, or on all supervisors of a connection. Each one needs a reason. */

import { Field, Flex, Text, Textarea } from "@chakra-ui/react";
import { type ChangeEvent, useState } from "react";

import { ReadOnlyNote, ActionButtons, Outcomes, useAction } from "./action_widgets";
import { request } from "./api";
import { useMessage } from "./messages";
import { ReasonDialog } from "./reason_dialog";
import { EARLIEST, TargetField, targetText } from "./reset_target";
import { NEW_SPEC, positionsOf, sourceOf, specOf } from "./spec_changes";
import { plural } from "./text";
import { sourceApi } from "./urls";
import { useActionNamed, useActions } from "./user_actions";
import type {
  ConnectionRow,
  ResetFacts,
  SubmissionFacts,
  SupervisorWithVerbs,
  VerbOutcome,
  VerbOutcomes,
} from "./schema";
import type { Place, ResetTarget } from "./types";

/** Actions on the source of a supervisor: their button is in the page's head. */
const OF_SOURCE = ["suspend", "resume"];

/**
 * The buttons of the actions that apply now.
 *
 * @param props `status` is null if there is no supervisor; `spec` is the one in effect, or the last one
 */
export function VerbButtons({
  place,
  status,
  spec,
  connection,
  refresh,
}: {
  place: Place;
  status: SupervisorWithVerbs | null;
  spec: Record<string, any> | null;
  connection: ConnectionRow | null;
  refresh: () => void;
}) {
  const [verb, setVerb] = useState<string | null>(null);
  const possible = status === null ? ["submit"] : status.verbs;
  const verbs = useActions("supervisors").filter(({ name }) => possible.includes(name) && !OF_SOURCE.includes(name));
  return (
    <>
      <ActionButtons
        actions={verbs.map(({ name, label, text }) => ({ name, verb: label, text }))}
        connection={connection}
        onPick={setVerb}
      />
      <ReadOnlyNote connection={connection} />
      {verb !== null && (
        <VerbDialog
          verb={verb}
          place={place}
          seenVersion={status?.spec_version ?? null}
          spec={spec ?? { ...NEW_SPEC, source: place.source }}
          onClose={() => {
            setVerb(null);
            refresh();
          }}
        />
      )}
    </>
  );
}

/** @param props `seenVersion` is the version of the spec that the user saw; the source is null if the spec names it */
function VerbDialog({
  verb,
  place,
  seenVersion,
  spec,
  onClose,
}: {
  verb: string;
  place: { connection: string; source: string | null };
  seenVersion: number | null;
  spec: Record<string, any>;
  onClose: () => void;
}) {
  const { palette, text, risk, done, label } = useActionNamed("supervisors", verb);
  const showMessage = useMessage();
  const { run, ...attempt } = useAction();
  // The version is fixed when the dialog opens.
  const [version] = useState(seenVersion);
  const [written, setWritten] = useState(() => JSON.stringify(spec, null, 2));
  const [isChecked, setChecked] = useState(true);
  const [target, setTarget] = useState(EARLIEST);
  const [result, setResult] = useState<{ title: string; items: string[] } | null>(null);

  const onConfirm = (reason: string) =>
    run(async () => {
      const body = { reason, ...bodyOf(verb, { written, isChecked, target, version }) };
      const source = place.source ?? sourceOf(specOf(written));
      const path = verb === "submit" ? "supervisor" : `supervisor/${verb}`;
      const response = await request(sourceApi(place.connection, source, path), { body });
      const text =
        verb === "submit"
          ? `Version ${response.version} of ${source} is in effect: ${response.consequence}.`
          : `${source} is ${done}.`;
      const items = notesOf(verb, response);
      if (items.length > 0) {
        setResult({ title: text, items });
        return;
      }
      showMessage(text);
      onClose();
    });
  return (
    <ReasonDialog
      title={
        verb === "submit"
          ? `Submit a spec${place.source === null ? "" : ` for ${place.source}`}?`
          : `${label} ${place.source}?`
      }
      text={text}
      risk={risk}
      verb={label}
      palette={palette}
      {...attempt}
      isDone={result !== null}
      doneContent={
        result !== null && (
          <Outcomes title={result.title} items={result.items.map((note) => ({ key: note, content: note }))} />
        )
      }
      onConfirm={onConfirm}
      onClose={onClose}
      size={verb === "submit" ? "xl" : "md"}
    >
      {verb === "submit" && (
        <Spec
          written={written}
          isWrong={attempt.problem?.kind === "refused"}
          onChange={setWritten}
          isChecked={isChecked}
          onCheck={setChecked}
        />
      )}
      {verb === "reset" && (
        <TargetField target={target} choices={["earliest", "latest", "instant", "positions"]} onChange={setTarget} />
      )}
    </ReasonDialog>
  );
}

/** Return the body of an action without its reason. */
function bodyOf(
  verb: string,
  {
    written,
    isChecked,
    target,
    version,
  }: { written: string; isChecked: boolean; target: ResetTarget; version: number | null },
) {
  if (verb === "submit")
    return { spec: specOf(written), connect: isChecked, ...(version === null ? {} : { replacing: version }) };
  if (verb !== "reset") return {};
  return target.name === "positions" ? { positions: positionsOf(target.text) } : { to: targetText(target) };
}

/** Return notes about the outcome: warnings, and the partitions that were not reset, and why. */
function notesOf(verb: string, response: any): string[] {
  if (verb === "submit") return (response as SubmissionFacts).warnings;
  if (verb !== "reset") return [];
  const { outcomes, unchanged, warnings } = response as ResetFacts;
  return [
    ...warnings,
    ...outcomes.filter(({ error }) => error !== "").map(({ partition_key: key, error }) => `${key}: ${error}`),
    ...Object.entries(unchanged).map(([key, why]) => `${key} is unchanged: ${why}`),
  ];
}

function Spec({
  written,
  isWrong,
  onChange,
  isChecked,
  onCheck,
}: {
  written: string;
  isWrong: boolean;
  onChange: (text: string) => void;
  isChecked: boolean;
  onCheck: (isChecked: boolean) => void;
}) {
  return (
    <>
      <Field.Root required invalid={isWrong}>
        <Field.Label>Spec, as JSON</Field.Label>
        <Textarea
          value={written}
          rows={16}
          fontFamily="mono"
          fontSize="xs"
          spellCheck={false}
          dir="ltr"
          onChange={(event) => onChange(event.target.value)}
        />
      </Field.Root>
      <Flex as="label" gap={2} align="center" fontSize="sm">
        <input
          type="checkbox"
          checked={isChecked}
          onChange={(event: ChangeEvent<HTMLInputElement>) => onCheck(event.target.checked)}
        />
        Check the spec against the source first
      </Flex>
    </>
  );
}

/** The actions on all supervisors of a connection, and on a source that has none yet. */
export function VerbsForAll({
  connection,
  count,
  refresh,
}: {
  connection: ConnectionRow;
  count: number;
  refresh: () => void;
}) {
  const [verb, setVerb] = useState<string | null>(null);
  const verbs = useActions("supervisors").filter((each) => count > 0 && each.text_for_many !== "");
  const onClose = () => {
    setVerb(null);
    refresh();
  };
  return (
    <>
      <ActionButtons
        actions={[
          { name: "submit", verb: "Submit a spec", text: "Starts to supervise a source that has no supervisor yet." },
          ...verbs.map(({ name, label, text_for_many: text }) => ({ name: `${name}-all`, verb: `${label} all`, text })),
        ]}
        connection={connection}
        onPick={(name) => setVerb(name.replace("-all", ""))}
        size="2xs"
      />
      {verb === "submit" && (
        <VerbDialog
          verb={verb}
          place={{ connection: connection.connection_id, source: null }}
          seenVersion={null}
          spec={NEW_SPEC}
          onClose={onClose}
        />
      )}
      {verb !== null && verb !== "submit" && (
        <ForAllDialog verb={verb} connection={connection.connection_id} count={count} onClose={onClose} />
      )}
    </>
  );
}

function ForAllDialog({
  verb,
  connection,
  count,
  onClose,
}: {
  verb: string;
  connection: string;
  count: number;
  onClose: () => void;
}) {
  const { label, palette, text_for_many: text, risk } = useActionNamed("supervisors", verb);
  const word = `${label} all`;
  const { run, ...attempt } = useAction();
  const showMessage = useMessage();
  const [target, setTarget] = useState(EARLIEST);
  const [results, setResults] = useState<VerbOutcome[] | null>(null);
  const left = (results ?? []).filter((each) => !each.is_done);

  const doneFor = (found: VerbOutcome[]) =>
    `Done for ${found.filter((each) => each.is_done).length} of ${plural(found.length, "supervisor")}.`;

  const onConfirm = (reason: string) =>
    run(async () => {
      const body = verb === "reset" ? { reason, to: targetText(target) } : { reason };
      const response = await request(`connections/${encodeURIComponent(connection)}/supervisors/${verb}`, { body });
      const found = (response as VerbOutcomes).results;
      if (found.some((each) => !each.is_done)) {
        setResults(found);
        return;
      }
      showMessage(doneFor(found));
      onClose();
    });
  return (
    <ReasonDialog
      title={`${word}: ${plural(count, "supervisor")} of ${connection}?`}
      text={text}
      risk={risk}
      verb={word}
      palette={palette}
      {...attempt}
      isDone={results !== null}
      doneContent={
        results !== null && (
          <Outcomes
            title={`${doneFor(results)} The others are unchanged.`}
            items={left.map(({ source, detail, has_failed: hasFailed }) => ({
              key: source,
              palette: hasFailed ? "red" : "gray",
              content: (
                <>
                  <Text fontWeight="medium">{source}</Text>
                  <Text color="fg.muted">{detail}</Text>
                </>
              ),
            }))}
          />
        )
      }
      onConfirm={onConfirm}
      onClose={onClose}
    >
      {verb === "reset" && (
        <TargetField target={target} choices={["earliest", "latest", "instant"]} onChange={setTarget} />
      )}
    </ReasonDialog>
  );
}
