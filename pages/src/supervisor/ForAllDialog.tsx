import { Text } from "@chakra-ui/react";
import { useState } from "react";

import { Outcomes } from "../actions/Outcomes";
import { ReasonDialog } from "../actions/ReasonDialog";
import { TargetField } from "../actions/TargetField";
import { EARLIEST, targetText } from "../actions/resetTarget";
import { useAction } from "../actions/useAction";
import { useActionNamed } from "../actions/userActions";
import { request } from "../api/request";
import type { VerbOutcome, VerbOutcomes } from "../api/schema";
import { useMessage } from "../components/useMessage";
import { plural } from "../format/text";

export function ForAllDialog({
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
