/** The batches that await acknowledgment: the time left, the missing handles, and their release. */

import { request } from "./api.js";
import { C, Fragment, h, useState } from "./host.js";
import { useLive } from "./live.js";
import { setVersionToSend } from "./action_requests.js";
import { ReadOnlyNote, ActionButtons, useAction } from "./action_widgets.js";
import { RelativeTime, CopyButton, Shortened, PageLink } from "./widgets.js";
import { sourceApi, withParameters } from "./urls.js";
import { EmptyState, LiveContent } from "./problems.js";
import { ReasonDialog } from "./reason_dialog.js";
import { Sinks } from "./sinks.js";
import { HeldBy } from "./watermark.js";
import { SmallTable } from "./small_table.js";
import { useMessage } from "./messages.js";
import { countText, plural } from "./text.js";
import { useNow } from "./clock.js";
import { duration, secondsUntil } from "./time.js";

const LIMIT = 500;

/**
 * Return the handles with open references. Those of sinks come last, as only the job releases them.
 *
 * @param {AcknowledgmentSet} set
 */
function openHandlesOf(set) {
  const sinks = new Set(set.sinks);
  return Object.entries(set.references)
    .filter(([, count]) => count > 0)
    .map(([handle, count]) => ({ handle, count, isSink: sinks.has(handle) }))
    .sort((a, b) => Number(a.isSink) - Number(b.isSink));
}

/** @param {{set: AcknowledgmentSet}} props */
function TimeLeft({ set }) {
  const now = useNow();
  const left = secondsUntil(set.expires_at, now);
  const isSoon = left < Math.max(60, set.timeout_seconds * 0.1);
  return h(
    C.Box,
    null,
    h(
      C.Text,
      { color: isSoon ? "orange.fg" : undefined, fontWeight: isSoon ? "semibold" : undefined, whiteSpace: "nowrap" },
      left > 0 ? `${duration(left)} left` : `${duration(left)} overdue`,
    ),
    h(
      C.Box,
      {
        h: "4px",
        w: "90px",
        bg: "bg.emphasized",
        borderRadius: "full",
        mt: 1,
        overflow: "hidden",
        "aria-hidden": true,
      },
      h(C.Box, {
        h: "full",
        bg: isSoon ? "orange.solid" : "purple.solid",
        style: { width: `${Math.min(100, Math.max(0, (left / set.timeout_seconds) * 100))}%` },
      }),
    ),
  );
}

/** @param {{set: AcknowledgmentSet}} props */
function OpenHandles({ set }) {
  const owed = openHandlesOf(set);
  return h(
    C.Stack,
    { gap: 0.5 },
    ...owed.map(({ handle, count, isSink }) =>
      h(
        C.Flex,
        { key: handle, gap: 1.5, align: "center" },
        h(C.Code, { size: "sm", variant: "surface", overflowWrap: "anywhere", minW: 0 }, handle),
        count > 1 && `×${count}`,
        isSink && h(C.Text, { fontSize: "xs", color: "fg.muted", flexShrink: 0 }, "released by the job"),
      ),
    ),
    owed.length === 0 && h(C.Text, { color: "fg.muted" }, "none: it is about to end"),
    h(C.Text, { fontSize: "xs", color: "fg.muted" }, `progress ${Math.round(set.progress * 100)} %`),
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

/** @param {boolean} positive */
function releaseOf(positive) {
  return positive ? ACKNOWLEDGE : REJECT;
}

/** @type {Record<string, string>} */
const EFFECTS = {
  late: "too late, the set had already ended",
  duplicate: "already released, nothing changed",
};

/**
 * The dialog that releases a handle.
 *
 * @param {{
 *   place: Place, set: AcknowledgmentSet, now: AcknowledgmentSet|null, positive: boolean, onClose: () => void,
 *   refresh: () => void,
 * }} props
 *     `set` is its state when the dialog opened, `now` its current state; null if it has ended
 */
function ReleaseDialog({ place, set, now, positive, onClose, refresh }) {
  const { verb, palette, text, risk } = releaseOf(positive);
  const owed = openHandlesOf(set);
  const [handle, setHandle] = useState(owed[0]?.handle ?? "");
  const { run, ...attempt } = useAction();
  const showMessage = useMessage();
  /** @param {string} reason */
  const onConfirm = (reason) =>
    run(async () => {
      const path = `acknowledgments/${encodeURIComponent(set.set_id)}/release`;
      const body = { positive, reason, version: setVersionToSend(now, set), ...(handle ? { handle } : {}) };
      const { effect } = await request(sourceApi(place.connection, place.source, path), { body });
      showMessage(`${verb}: ${EFFECTS[effect] ?? `${handle || "the batch"} is released`}.`);
      refresh();
      onClose();
    });
  return h(
    ReasonDialog,
    { title: `${verb} this batch?`, text, risk, verb, palette, ...attempt, onConfirm, onClose },
    h(
      C.Box,
      { fontSize: "sm", borderWidth: 1, borderColor: "border", borderRadius: "md", p: 2 },
      h(C.Flex, { minW: 0 }, h(Shortened, { text: set.batch_id, fontFamily: "mono", fontSize: "xs" })),
      h(C.Flex, { minW: 0, color: "fg.muted" }, h(Shortened, { text: set.partition_key })),
      typeof set.batch.records === "number" && h(C.Text, { color: "fg.muted" }, plural(set.batch.records, "record")),
    ),
    owed.length > 1 &&
      h(
        C.Field.Root,
        null,
        h(C.Field.Label, null, "Handle"),
        h(
          C.NativeSelect.Root,
          null,
          h(
            C.NativeSelect.Field,
            { value: handle, onChange: (event) => setHandle(event.target.value) },
            ...owed.map((each) =>
              h(
                "option",
                { key: each.handle, value: each.handle },
                each.isSink ? `${each.handle} (normally released by the job)` : each.handle,
              ),
            ),
          ),
          h(C.NativeSelect.Indicator),
        ),
      ),
  );
}

/**
 * The page.
 *
 * @param {{place: Place, card: Api.SourceCard|null, connection: Api.ConnectionRow|null, search: string}} props
 */
export function AcknowledgmentsPage({ place, card, connection, search }) {
  const live = useLive(sourceApi(place.connection, place.source, `acknowledgments?limit=${LIMIT}`));
  const [release, setRelease] = useState(/** @type {{set: AcknowledgmentSet, positive: boolean}|null} */ (null));
  return h(
    C.Box,
    { minW: 0 },
    card !== null && h(Sinks, { sinks: card.sinks, watermark: card.watermark }),
    card !== null && h(HeldBy, { watermark: card.watermark }),
    h(LiveContent, {
      live,
      what: "acknowledgments",
      connection: place.connection,
      children: (sets) =>
        sets.length === 0
          ? h(EmptyState, {
              key: "none",
              title: "No pending acknowledgments",
              text: "Batches appear here while they await acknowledgment by a check, a load, or an external system.",
              icon: "check",
              kind: "empty",
            })
          : h(
              Fragment,
              { key: "sets" },
              h(
                C.Text,
                { fontSize: "sm", color: "fg.muted", mb: 2 },
                sets.length === LIMIT
                  ? `The ${LIMIT} batches that expire first.`
                  : `${plural(sets.length, "batch awaits", "batches await")} acknowledgment. Those that expire first come first.`,
              ),
              h(ReadOnlyNote, { connection }),
              h(SmallTable, {
                label: "Pending acknowledgment sets",
                rows: sets,
                keyOf: (set) => set.set_id,
                columns: [
                  {
                    name: "batch",
                    title: "Batch",
                    cell: (set) =>
                      h(
                        C.Box,
                        { minW: 0 },
                        h(
                          C.Flex,
                          { minW: 0, align: "center" },
                          h(Shortened, { text: set.batch_id, fontFamily: "mono", fontSize: "xs" }),
                          h(CopyButton, { text: set.set_id, label: `Copy the id of the set ${set.set_id}` }),
                        ),
                        h(
                          PageLink,
                          {
                            to: { search: withParameters(search, { partition: set.partition_key }) },
                            fontSize: "xs",
                            minW: 0,
                            maxW: "full",
                            "aria-label": `Partition ${set.partition_key}`,
                          },
                          h(Shortened, { text: set.partition_key }),
                        ),
                      ),
                  },
                  { name: "left", title: "Time left", cell: (set) => h(TimeLeft, { set }) },
                  { name: "missing", title: "Missing handles", cell: (set) => h(OpenHandles, { set }) },
                  {
                    name: "records",
                    title: "Records",
                    align: "end",
                    cell: (set) => countText(set.batch.records ?? null),
                  },
                  { name: "since", title: "Waiting since", cell: (set) => h(RelativeTime, { instant: set.created_at }) },
                  ...(connection?.may_change
                    ? [
                        {
                          name: "actions",
                          title: "Actions",
                          maxW: "none",
                          cell: (/** @type {AcknowledgmentSet} */ set) =>
                            h(ActionButtons, {
                              actions: [ACKNOWLEDGE, REJECT].map((each) => ({ ...each, isDisabled: openHandlesOf(set).length === 0 })),
                              connection,
                              onPick: (name) => setRelease({ set, positive: name === ACKNOWLEDGE.name }),
                            }),
                        },
                      ]
                    : []),
                ],
              }),
            ),
    }),
    release !== null &&
      h(ReleaseDialog, {
        ...release,
        now: live.response?.find((/** @type {AcknowledgmentSet} */ each) => each.set_id === release.set.set_id) ?? null,
        place,
        refresh: live.refresh,
        onClose: () => setRelease(null),
      }),
  );
}
