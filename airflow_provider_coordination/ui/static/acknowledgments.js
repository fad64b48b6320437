/** The batches that wait for somebody's word: how long still, whose word is missing, and giving it. */

import { ask } from "./api.js";
import { C, Fragment, h, useState } from "./host.js";
import { useLive } from "./live.js";
import { setVersionSeen } from "./action_requests.js";
import { LookOnly, OrderButtons, useOrder } from "./action_widgets.js";
import { Ago, Copy, Shortened, To } from "./widgets.js";
import { sourceApi, withParameters } from "./urls.js";
import { Nothing, Shown } from "./problems.js";
import { ReasonDialog } from "./reason_dialog.js";
import { Sinks } from "./sinks.js";
import { SmallTable } from "./small_table.js";
import { useTell } from "./messages.js";
import { countText, plural } from "./text.js";
import { useNow } from "./clock.js";
import { duration, secondsUntil } from "./time.js";

const LIMIT = 500;

/**
 * Return the handles that still owe something: the job's own last, since nobody else can speak for them.
 *
 * @param {AcknowledgmentSet} set
 */
function owing(set) {
  const sinks = new Set(set.sinks);
  return Object.entries(set.references)
    .filter(([, count]) => count > 0)
    .map(([handle, count]) => ({ handle, count, isSink: sinks.has(handle) }))
    .sort((a, b) => Number(a.isSink) - Number(b.isSink));
}

/** @param {{set: AcknowledgmentSet}} props */
function Left({ set }) {
  const now = useNow();
  const left = secondsUntil(set.expires_at, now);
  const isSoon = left < Math.max(60, set.timeout_seconds * 0.1);
  return h(
    C.Box,
    null,
    h(
      C.Text,
      { color: isSoon ? "orange.fg" : undefined, fontWeight: isSoon ? "semibold" : undefined, whiteSpace: "nowrap" },
      left > 0 ? `${duration(left)} left` : `${duration(left)} over`,
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
function Missing({ set }) {
  const owed = owing(set);
  return h(
    C.Stack,
    { gap: 0.5 },
    ...owed.map(({ handle, count, isSink }) =>
      h(
        C.Flex,
        { key: handle, gap: 1.5, align: "center" },
        h(C.Code, { size: "sm", variant: "surface", overflowWrap: "anywhere", minW: 0 }, handle),
        count > 1 && `×${count}`,
        isSink && h(C.Text, { fontSize: "xs", color: "fg.muted", flexShrink: 0 }, "from its job"),
      ),
    ),
    owed.length === 0 && h(C.Text, { color: "fg.muted" }, "nothing; it is about to end"),
    h(C.Text, { fontSize: "xs", color: "fg.muted" }, `${Math.round(set.progress * 100)} % given`),
  );
}

const GOOD = {
  name: "acknowledge",
  verb: "Acknowledge",
  palette: "green",
  text: "Says that the batch arrived. When nothing more is missing, the checkpoint moves over it.",
  risk: "Acknowledging what is not there loses it.",
};
const BAD = {
  name: "reject",
  verb: "Reject",
  palette: "red",
  text: "Says that the batch did not arrive. It is delivered again, and the failure is counted.",
  risk: "After several failures in a row its partition is put aside.",
};

/** @param {boolean} positive */
function verdictOf(positive) {
  return positive ? GOOD : BAD;
}

/** @type {Record<string, string>} */
const EFFECTS = {
  late: "too late: the set had ended",
  duplicate: "given before: nothing changed",
};

/**
 * The dialog of a word.
 *
 * @param {{
 *   place: Place, set: AcknowledgmentSet, now: AcknowledgmentSet|null, positive: boolean, onClose: () => void,
 *   refresh: () => void,
 * }} props
 *     `set` as it was when the dialog opened, `now` as it is; null where it has ended
 */
function Verdict({ place, set, now, positive, onClose, refresh }) {
  const { verb, palette, text, risk } = verdictOf(positive);
  const owed = owing(set);
  const [handle, setHandle] = useState(owed[0]?.handle ?? "");
  const { give, ...order } = useOrder();
  const tell = useTell();
  /** @param {string} reason */
  const onConfirm = (reason) =>
    give(async () => {
      const path = `acknowledgments/${encodeURIComponent(set.set_id)}/release`;
      const body = { positive, reason, version: setVersionSeen(now, set), ...(handle ? { handle } : {}) };
      const { effect } = await ask(sourceApi(place.connection, place.source, path), { body });
      tell(`${verb}: ${EFFECTS[effect] ?? `${handle || "the batch"} is told`}.`);
      refresh();
      onClose();
    });
  return h(
    ReasonDialog,
    { title: `${verb} this batch?`, text, risk, verb, palette, ...order, onConfirm, onClose },
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
        h(C.Field.Label, null, "Whose word"),
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
                each.isSink ? `${each.handle} (its job gives this one)` : each.handle,
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
  const [verdict, setVerdict] = useState(/** @type {{set: AcknowledgmentSet, positive: boolean}|null} */ (null));
  return h(
    C.Box,
    { minW: 0 },
    card !== null && h(Sinks, { sinks: card.sinks }),
    h(Shown, {
      live,
      what: "acknowledgments",
      connection: place.connection,
      children: (sets) =>
        sets.length === 0
          ? h(Nothing, {
              key: "none",
              title: "Nobody waits for a word",
              text: "Batches appear here while they wait to be acknowledged by a check, a load, or a system outside.",
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
                  ? `The ${LIMIT} that end first`
                  : `${plural(sets.length, "batch waits", "batches wait")}, those that end soonest first.`,
              ),
              h(LookOnly, { connection }),
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
                          h(Copy, { text: set.set_id, label: `Copy the name of the set ${set.set_id}` }),
                        ),
                        h(
                          To,
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
                  { name: "left", title: "Time left", cell: (set) => h(Left, { set }) },
                  { name: "missing", title: "Missing", cell: (set) => h(Missing, { set }) },
                  {
                    name: "records",
                    title: "Records",
                    align: "end",
                    cell: (set) => countText(set.batch.records ?? null),
                  },
                  { name: "since", title: "Waits since", cell: (set) => h(Ago, { instant: set.created_at }) },
                  ...(connection?.may_change
                    ? [
                        {
                          name: "actions",
                          title: "Your word",
                          maxW: "none",
                          cell: (/** @type {AcknowledgmentSet} */ set) =>
                            h(OrderButtons, {
                              orders: [GOOD, BAD].map((each) => ({ ...each, isDisabled: owing(set).length === 0 })),
                              connection,
                              onPick: (name) => setVerdict({ set, positive: name === GOOD.name }),
                            }),
                        },
                      ]
                    : []),
                ],
              }),
            ),
    }),
    verdict !== null &&
      h(Verdict, {
        ...verdict,
        now: live.answer?.find((/** @type {AcknowledgmentSet} */ each) => each.set_id === verdict.set.set_id) ?? null,
        place,
        refresh: live.refresh,
        onClose: () => setVerdict(null),
      }),
  );
}
