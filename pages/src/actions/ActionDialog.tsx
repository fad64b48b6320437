import { Text } from "@chakra-ui/react";
import { useRef, useState } from "react";

import { request } from "../api/request";
import type { ActionResult, ActionResults } from "../api/schema";
import { useMessage } from "../components/useMessage";
import { capitalized, plural } from "../format/text";
import type { Place, Row } from "../types";
import { sourceApi } from "../urls";
import { AffectedPartitions } from "./AffectedPartitions";
import { ReasonDialog } from "./ReasonDialog";
import { Results } from "./Results";
import { TargetField } from "./TargetField";
import { laterVersion, requestGroups, versionToSend } from "./requests";
import { EARLIEST, targetText } from "./resetTarget";
import { useAction } from "./useAction";
import { useActionNamed } from "./userActions";

/**
 * The dialog of an action on partitions.
 *
 * @param props rows as they are shown
 *     now; they may be refreshed while the dialog is open. The action applies to those that allowed it when it opened
 */
export function ActionDialog({
  place,
  action,
  rows,
  onClose,
}: {
  place: Place;
  action: string;
  rows: Row[];
  onClose: (done: boolean) => void;
}) {
  const { label, palette, text, text_for_many: textForMany, risk, ...described } = useActionNamed("partitions", action);
  const done = capitalized(described.done);
  const showMessage = useMessage();
  // The partitions are fixed when the dialog opens. A later change is reported as stale, and removes none of them.
  const [selected, setSelected] = useState(() => rows.filter((row) => row.actions.includes(action)));
  const [leftOut, setLeftOut] = useState(rows.length - selected.length);
  const outcomes = useRef<ActionResult[]>([]);
  const { run, ...attempt } = useAction();
  const [results, setResults] = useState<ActionResult[] | null>(null);
  const [target, setTarget] = useState(EARLIEST);
  const latest = new Map(rows.map((row) => [row.partition_key, row]));
  const shown = selected.map((row) => laterVersion(row, latest.get(row.partition_key)));

  const hasPositions = shown.every((row) => row.has_positions);

  const confirm = (reason: string) => {
    const requested = shown.map((row, at) => ({ key: row.partition_key, version: versionToSend(row, selected[at]) }));
    const to = action === "reset" ? { to: targetText(target) } : {};
    return run(async () => {
      try {
        for (const partitions of requestGroups(requested)) {
          const body = { partitions, reason, ...to };
          const response = await request<ActionResults>(
            sourceApi(place.connection, place.source, `partitions/${action}`),
            { body },
          );
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
  return (
    <ReasonDialog
      title={`${label} ${name}?`}
      text={shown.length === 1 ? text : textForMany}
      risk={risk}
      verb={label}
      palette={palette}
      {...attempt}
      isDone={results !== null}
      doneContent={results && <Results results={results} done={done} again={again} />}
      onConfirm={confirm}
      onClose={() => onClose(results !== null)}
    >
      <AffectedPartitions rows={shown} leftOut={leftOut} />
      {action === "reset" &&
        (hasPositions ? (
          <TargetField
            target={target}
            // A number belongs to one partition.
            choices={["earliest", "latest", "instant", ...(shown.length === 1 ? ["number"] : [])]}
            onChange={setTarget}
          />
        ) : (
          <Text fontSize="sm">From the start. Sources of this kind have no other positions.</Text>
        ))}
    </ReasonDialog>
  );
}
