import type { ConnectionRow } from "../api/schema";
import type { Row } from "../types";
import { ActionButtons } from "./ActionButtons";
import { ReadOnlyNote } from "./ReadOnlyNote";
import { useActions } from "./userActions";

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
