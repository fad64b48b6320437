/** Actions on partitions. Each one names the versions that the user saw, and shows the outcome for each partition. */

import { Button, Flex, Stack, Text } from "@chakra-ui/react";
import { useRef, useState } from "react";

import { requestGroups, laterVersion, versionToSend } from "./action_requests";
import { ReadOnlyNote, ActionButtons, Outcomes, useAction } from "./action_widgets";
import { request } from "./api";
import { useMessage } from "./messages";
import { ReasonDialog } from "./reason_dialog";
import { EARLIEST, TargetField, targetText } from "./reset_target";
import { capitalized, plural } from "./text";
import { sourceApi } from "./urls";
import { useActionNamed, useActions } from "./user_actions";
import { Chip, Shortened } from "./widgets";
import type { ActionResult, ConnectionRow } from "./schema";
import type { Place, Row } from "./types";

const LISTED = 6;

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
          <Text fontSize="sm">From the start: sources of this kind have no other positions.</Text>
        ))}
    </ReasonDialog>
  );
}

function AffectedPartitions({ rows, leftOut }: { rows: Row[]; leftOut: number }) {
  return (
    <Stack
      as="ul"
      gap={1}
      listStyleType="none"
      borderWidth={1}
      borderColor="border"
      borderRadius="md"
      p={2}
      fontSize="sm"
      aria-label="Affected partitions"
    >
      {rows.slice(0, LISTED).map((row) => (
        <Flex as="li" key={row.partition_key} gap={2} align="center" minW={0}>
          <Chip state={row.state} size="xs" />
          <Shortened text={row.partition_key} tail={28} />
        </Flex>
      ))}
      {rows.length > LISTED && (
        <Text as="li" color="fg.muted">
          {`and ${rows.length - LISTED} more`}
        </Text>
      )}
      {leftOut > 0 && (
        <Text as="li" color="fg.muted">
          {`${plural(leftOut, "other selected partition is", "other selected partitions are")} left out: the action does not apply to them.`}
        </Text>
      )}
    </Stack>
  );
}

const OUTCOMES: Record<string, [string, string]> = {
  stale: ["It has changed since you opened the dialog. Nothing was done", "orange"],
  refused: ["Refused", "red"],
  missing: ["It no longer exists", "gray"],
};

function Results({ results, done, again }: { results: ActionResult[]; done: string; again: () => void }) {
  const good = results.filter((result) => result.outcome === "done").length;
  const rest = results.filter((result) => result.outcome !== "done");
  const stale = rest.filter((result) => result.outcome === "stale" && result.partition !== null);
  return (
    <Outcomes
      title={`${done} ${good} of ${plural(results.length, "partition")}.`}
      items={rest.map((result) => ({
        key: result.key,
        palette: OUTCOMES[result.outcome][1],
        outcome: result.outcome,
        content: <Result result={result} />,
      }))}
    >
      {stale.length > 0 && (
        <Button size="sm" variant="outline" alignSelf="flex-start" type="button" onClick={again}>
          {stale.length === 1
            ? "Try again with its current state…"
            : `Try again with the current state of these ${stale.length}…`}
        </Button>
      )}
    </Outcomes>
  );
}

function Result({ result }: { result: ActionResult }) {
  return (
    <>
      <Flex gap={2} align="center" minW={0}>
        <Shortened text={result.key} tail={28} fontWeight="medium" />
      </Flex>
      <Text>{OUTCOMES[result.outcome][0]}.</Text>
      <Text color="fg.muted">{result.detail}</Text>
      {result.partition && (
        <Flex gap={2} align="center" mt={1}>
          Current state:
          <Chip state={result.partition.state} size="xs" />
          {result.partition.owner && <Shortened text={result.partition.owner.name} />}
        </Flex>
      )}
    </>
  );
}

/** The buttons of the actions that apply to these partitions. */
export function PartitionActionButtons({
  rows,
  connection,
  onPick,
}: {
  rows: Row[];
  connection: ConnectionRow | null;
  onPick: (action: string) => void;
}) {
  const possible = new Set(rows.flatMap((row) => row.actions));
  const actions = useActions("partitions")
    .filter(({ name }) => possible.has(name))
    .map(({ name, label, text }) => ({ name, verb: label, text }));
  return (
    <>
      <ActionButtons actions={actions} connection={connection} onPick={onPick} />
      <ReadOnlyNote connection={connection} />
    </>
  );
}
