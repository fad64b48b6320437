import { useState } from "react";

import { Outcomes } from "../actions/Outcomes";
import { ReasonDialog } from "../actions/ReasonDialog";
import { TargetField } from "../actions/TargetField";
import { EARLIEST } from "../actions/resetTarget";
import { useAction } from "../actions/useAction";
import { useActionNamed } from "../actions/userActions";
import { request } from "../api/request";
import { useMessage } from "../components/useMessage";
import { sourceApi } from "../urls";
import { Spec } from "./Spec";
import { sourceOf, specOf } from "./specChanges";
import { bodyOf, notesOf } from "./verbs";
import type { ResetFacts, SubmissionFacts } from "../api/schema";
import type { JsonObject } from "../types";

/** @param props `seenVersion` is the version of the spec that the user saw; the source is null if the spec names it */
export function VerbDialog({
  verb,
  place,
  seenVersion,
  spec,
  onClose,
}: {
  verb: string;
  place: { connection: string; source: string | null };
  seenVersion: number | null;
  spec: JsonObject;
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
      const response = await request<Partial<SubmissionFacts & ResetFacts>>(sourceApi(place.connection, source, path), {
        body,
      });
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
