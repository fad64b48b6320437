import { Box, Field, Flex, NativeSelect, Text } from "@chakra-ui/react";
import { useState } from "react";

import { ReasonDialog } from "../actions/ReasonDialog";
import { setVersionToSend } from "../actions/requests";
import { useAction } from "../actions/useAction";
import { request } from "../api/request";
import { Shortened } from "../components/Shortened";
import { useMessage } from "../components/useMessage";
import { plural } from "../format/text";
import type { AcknowledgmentSet, Place } from "../types";
import { sourceApi } from "../urls";
import { EFFECTS, openHandlesOf, releaseOf } from "./release";

/**
 * The dialog that releases a handle.
 *
 * @param props
 *     `set` is its state when the dialog opened, `now` its current state; null if it has ended
 */
export function ReleaseDialog({
  place,
  set,
  now,
  positive,
  onClose,
  refresh,
}: {
  place: Place;
  set: AcknowledgmentSet;
  now: AcknowledgmentSet | null;
  positive: boolean;
  onClose: () => void;
  refresh: () => void;
}) {
  const { verb, palette, text, risk } = releaseOf(positive);
  const owed = openHandlesOf(set);
  const [handle, setHandle] = useState(owed[0]?.handle ?? "");
  const { run, ...attempt } = useAction();
  const showMessage = useMessage();

  const onConfirm = (reason: string) =>
    run(async () => {
      const path = `acknowledgments/${encodeURIComponent(set.set_id)}/release`;
      const body = { positive, reason, version: setVersionToSend(now, set), ...(handle ? { handle } : {}) };
      const { effect } = await request<{ effect: string }>(sourceApi(place.connection, place.source, path), { body });
      showMessage(`${verb}: ${EFFECTS[effect] ?? `${handle || "the batch"} is released`}.`);
      refresh();
      onClose();
    });
  return (
    <ReasonDialog
      title={`${verb} this batch?`}
      text={text}
      risk={risk}
      verb={verb}
      palette={palette}
      {...attempt}
      onConfirm={onConfirm}
      onClose={onClose}
    >
      <Box fontSize="sm" borderWidth={1} borderColor="border" borderRadius="md" p={2}>
        <Flex minW={0}>
          <Shortened text={set.batch_id} fontFamily="mono" fontSize="xs" />
        </Flex>
        <Flex minW={0} color="fg.muted">
          <Shortened text={set.partition_key} />
        </Flex>
        {typeof set.batch.records === "number" && <Text color="fg.muted">{plural(set.batch.records, "record")}</Text>}
      </Box>
      {owed.length > 1 && (
        <Field.Root>
          <Field.Label>Handle</Field.Label>
          <NativeSelect.Root>
            <NativeSelect.Field value={handle} onChange={(event) => setHandle(event.target.value)}>
              {owed.map((each) => (
                <option key={each.handle} value={each.handle}>
                  {each.isSink ? `${each.handle} (normally released by the job)` : each.handle}
                </option>
              ))}
            </NativeSelect.Field>
            <NativeSelect.Indicator />
          </NativeSelect.Root>
        </Field.Root>
      )}
    </ReasonDialog>
  );
}
