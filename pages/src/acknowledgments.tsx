/** The batches that await acknowledgment: the time left, the missing handles, and their release. */

import { Box, Code, Field, Flex, NativeSelect, Stack, Text } from "@chakra-ui/react";
import { Fragment, useState } from "react";

import { setVersionToSend } from "./action_requests";
import { ReadOnlyNote, ActionButtons, useAction } from "./action_widgets";
import { request } from "./api";
import { useNow } from "./clock";
import { useLive } from "./live";
import { useMessage } from "./messages";
import { EmptyState, LiveContent } from "./problems";
import { ReasonDialog } from "./reason_dialog";
import { Sinks } from "./sinks";
import { SmallTable } from "./small_table";
import { countText, plural } from "./text";
import { duration, secondsUntil } from "./time";
import { sourceApi, withParameters } from "./urls";
import { HeldBy } from "./watermark";
import { RelativeTime, CopyButton, Shortened, PageLink } from "./widgets";
import type { ConnectionRow, SourceCard } from "./schema";
import type { Place, AcknowledgmentSet } from "./types";

const LIMIT = 500;

/** Return the handles with open references. Those of sinks come last, as only the job releases them. */
function openHandlesOf(set: AcknowledgmentSet) {
  const sinks = new Set(set.sinks);
  return Object.entries(set.references)
    .filter(([, count]) => count > 0)
    .map(([handle, count]) => ({ handle, count, isSink: sinks.has(handle) }))
    .sort((a, b) => Number(a.isSink) - Number(b.isSink));
}

function TimeLeft({ set }: { set: AcknowledgmentSet }) {
  const now = useNow();
  const left = secondsUntil(set.expires_at, now);
  const isSoon = left < Math.max(60, set.timeout_seconds * 0.1);
  return (
    <Box>
      <Text color={isSoon ? "orange.fg" : undefined} fontWeight={isSoon ? "semibold" : undefined} whiteSpace="nowrap">
        {left > 0 ? `${duration(left)} left` : `${duration(left)} overdue`}
      </Text>
      <Box h="4px" w="90px" bg="bg.emphasized" borderRadius="full" mt={1} overflow="hidden" aria-hidden>
        <Box
          h="full"
          bg={isSoon ? "orange.solid" : "purple.solid"}
          style={{ width: `${Math.min(100, Math.max(0, (left / set.timeout_seconds) * 100))}%` }}
        />
      </Box>
    </Box>
  );
}

function OpenHandles({ set }: { set: AcknowledgmentSet }) {
  const owed = openHandlesOf(set);
  return (
    <Stack gap={0.5}>
      {owed.map(({ handle, count, isSink }) => (
        <Flex key={handle} gap={1.5} align="center">
          <Code size="sm" variant="surface" overflowWrap="anywhere" minW={0}>
            {handle}
          </Code>
          {count > 1 && `×${count}`}
          {isSink && (
            <Text fontSize="xs" color="fg.muted" flexShrink={0}>
              released by the job
            </Text>
          )}
        </Flex>
      ))}
      {owed.length === 0 && <Text color="fg.muted">none: it is about to end</Text>}
      <Text fontSize="xs" color="fg.muted">
        {`progress ${Math.round(set.progress * 100)} %`}
      </Text>
    </Stack>
  );
}

const ACKNOWLEDGE = {
  name: "acknowledge",
  verb: "Acknowledge",
  palette: "green",
  text: "Confirms that the batch arrived. Once every handle has confirmed it, the checkpoint moves past it.",
  risk: "If the data did not arrive, it is lost.",
};
const REJECT = {
  name: "reject",
  verb: "Reject",
  palette: "red",
  text: "Reports that the batch did not arrive. It is delivered again, and the failure is counted.",
  risk: "After several failures in a row, its partition is closed for a while, then parked.",
};

function releaseOf(positive: boolean) {
  return positive ? ACKNOWLEDGE : REJECT;
}

const EFFECTS: Record<string, string> = {
  late: "too late, the set had already ended",
  duplicate: "already released, nothing changed",
};

/**
 * The dialog that releases a handle.
 *
 * @param props
 *     `set` is its state when the dialog opened, `now` its current state; null if it has ended
 */
function ReleaseDialog({
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
      const { effect } = await request(sourceApi(place.connection, place.source, path), { body });
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

/** The page. */
export function AcknowledgmentsPage({
  place,
  card,
  connection,
  search,
}: {
  place: Place;
  card: SourceCard | null;
  connection: ConnectionRow | null;
  search: string;
}) {
  const live = useLive(sourceApi(place.connection, place.source, `acknowledgments?limit=${LIMIT}`));
  const [release, setRelease] = useState<{ set: AcknowledgmentSet; positive: boolean } | null>(null);
  return (
    <Box minW={0}>
      {card !== null && <Sinks sinks={card.sinks} watermark={card.watermark} />}
      {card !== null && <HeldBy watermark={card.watermark} />}
      <LiveContent live={live} what="acknowledgments" connection={place.connection}>
        {(sets) =>
          sets.length === 0 ? (
            <EmptyState
              key="none"
              title="No pending acknowledgments"
              text="Batches appear here while they await acknowledgment by a check, a load, or an external system."
              icon="check"
              kind="empty"
            />
          ) : (
            <Fragment key="sets">
              <Text fontSize="sm" color="fg.muted" mb={2}>
                {sets.length === LIMIT
                  ? `The ${LIMIT} batches that expire first.`
                  : `${plural(sets.length, "batch awaits", "batches await")} acknowledgment. Those that expire first come first.`}
              </Text>
              <ReadOnlyNote connection={connection} />
              <SmallTable
                label="Pending acknowledgment sets"
                rows={sets}
                keyOf={(set) => set.set_id}
                columns={[
                  {
                    name: "batch",
                    title: "Batch",
                    cell: (set) => (
                      <Box minW={0}>
                        <Flex minW={0} align="center">
                          <Shortened text={set.batch_id} fontFamily="mono" fontSize="xs" />
                          <CopyButton text={set.set_id} label={`Copy the id of the set ${set.set_id}`} />
                        </Flex>
                        <PageLink
                          to={{ search: withParameters(search, { partition: set.partition_key }) }}
                          fontSize="xs"
                          minW={0}
                          maxW="full"
                          aria-label={`Partition ${set.partition_key}`}
                        >
                          <Shortened text={set.partition_key} />
                        </PageLink>
                      </Box>
                    ),
                  },
                  { name: "left", title: "Time left", cell: (set) => <TimeLeft set={set} /> },
                  { name: "missing", title: "Missing handles", cell: (set) => <OpenHandles set={set} /> },
                  {
                    name: "records",
                    title: "Records",
                    align: "end",
                    cell: (set) => countText(set.batch.records ?? null),
                  },
                  { name: "since", title: "Waiting since", cell: (set) => <RelativeTime instant={set.created_at} /> },
                  ...(connection?.may_change
                    ? [
                        {
                          name: "actions",
                          title: "Actions",
                          maxW: "none",
                          cell: (set: AcknowledgmentSet) => (
                            <ActionButtons
                              actions={[ACKNOWLEDGE, REJECT].map((each) => ({
                                ...each,
                                isDisabled: openHandlesOf(set).length === 0,
                              }))}
                              connection={connection}
                              onPick={(name) => setRelease({ set, positive: name === ACKNOWLEDGE.name })}
                            />
                          ),
                        },
                      ]
                    : []),
                ]}
              />
            </Fragment>
          )
        }
      </LiveContent>
      {release !== null && (
        <ReleaseDialog
          {...release}
          now={live.response?.find((each: AcknowledgmentSet) => each.set_id === release.set.set_id) ?? null}
          place={place}
          refresh={live.refresh}
          onClose={() => setRelease(null)}
        />
      )}
    </Box>
  );
}
