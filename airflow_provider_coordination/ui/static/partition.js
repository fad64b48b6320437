/** The drawer of one partition: its details, and the actions on it. */

import { PartitionActionButtons, ActionDialog } from "./actions.js";
import { C, Fragment, h, useEffect, useRef, useState } from "./host.js";
import { Icon } from "./icons.js";
import { useLive } from "./live.js";
import { Time } from "./partition_cells.js";
import { RelativeTime, Chip, CopyButton, Dot, FactList, Instant, ManualLink, Owner, Section, Shortened, PageLink } from "./widgets.js";
import { pathOf, sourceApi, taskPath, withParameters } from "./urls.js";
import { ProblemPage, Loading, EmptyState, StaleNote } from "./problems.js";
import { SET_STATES, stateOf, STATES } from "./states.js";
import { countText, ownerLabel, plural } from "./text.js";
import { lagText } from "./time.js";

/**
 * A text with a button that copies it.
 *
 * @param {{text: string, label: string, mono?: boolean}} props
 */
function Copied({ text, label, mono = true }) {
  if (text === null || text === undefined || text === "") return "–";
  return h(
    C.Flex,
    { align: "flex-start", gap: 1, minW: 0 },
    h(
      C.Text,
      {
        fontFamily: mono ? "mono" : undefined,
        fontSize: mono ? "xs" : "sm",
        pt: mono ? "2px" : 0,
        overflowWrap: "anywhere",
        minW: 0,
      },
      text,
    ),
    h(CopyButton, { text: String(text), label }),
  );
}

/** @param {{text: string, label: string, maxH?: string}} props */
function Block({ text, label, maxH = "320px" }) {
  return h(
    C.Box,
    { position: "relative" },
    h(
      C.Box,
      {
        as: "pre",
        role: "group",
        tabIndex: 0,
        "aria-label": label,
        fontFamily: "mono",
        fontSize: "xs",
        bg: "bg.muted",
        color: "fg",
        borderRadius: "md",
        p: 3,
        pe: 10,
        m: 0,
        overflow: "auto",
        maxH,
        whiteSpace: "pre-wrap",
        overflowWrap: "anywhere",
      },
      text,
    ),
    h(C.Box, { position: "absolute", top: 1.5, insetInlineEnd: 1.5 }, h(CopyButton, { text, label: `Copy: ${label}` })),
  );
}

/**
 * The owner of a partition: its task try, its log, and its full name.
 *
 * @param {{owner: Api.Owner}} props
 */
function OwnerFacts({ owner }) {
  const path = taskPath(owner);
  return h(
    C.Stack,
    { gap: 0.5, minW: 0 },
    path
      ? h(
          C.Flex,
          { gap: 2, align: "center", wrap: "wrap" },
          h(Owner, { owner }),
          h(
            PageLink,
            { to: path, fontSize: "xs", "data-log": true },
            "Task instance and log ",
            h(Icon, { name: "link", size: 3 }),
          ),
        )
      : h(Shortened, { text: ownerLabel(owner) }),
    owner.dag_id &&
      h(
        C.Text,
        { fontSize: "xs", color: "fg.muted", overflowWrap: "anywhere" },
        `DAG ${owner.dag_id}, run ${owner.run_id}, host ${owner.host}`,
      ),
    h(Copied, { text: owner.name, label: "Copy the name of the owner" }),
  );
}

/** @param {{batches: Api.LandedFacts[]}} props */
function Landed({ batches }) {
  return h(
    Section,
    {
      title: "Landed batches, not delivered",
      aside: h(C.Text, { fontSize: "xs", color: "fg.muted" }, plural(batches.length, "batch", "batches")),
    },
    h(
      C.Stack,
      { gap: 2 },
      ...batches.map((batch) =>
        h(
          C.Box,
          {
            key: batch.batch_id + batch.start,
            borderWidth: 1,
            borderColor: "border",
            borderRadius: "md",
            p: 2,
            fontSize: "sm",
          },
          h(
            C.Flex,
            { justify: "space-between", gap: 2, wrap: "wrap" },
            h(
              C.Badge,
              {
                variant: "subtle",
                colorPalette: { rejected: "red", acknowledged: "green", waiting: "purple" }[batch.state] ?? "gray",
              },
              batch.state,
            ),
            h(C.Text, { fontVariantNumeric: "tabular-nums" }, plural(batch.records, "record")),
          ),
          h(Copied, { text: batch.batch_id, label: "Copy the id of the batch" }),
          h(
            C.Text,
            { fontFamily: "mono", fontSize: "xs", color: "fg.muted", overflowWrap: "anywhere" },
            `(${batch.start || "start"}, ${batch.end}]`,
          ),
          batch.file && h(Copied, { text: batch.file, label: "Copy the location of the file" }),
        ),
      ),
    ),
  );
}

/** @param {{sets: AcknowledgmentSet[], place: Place}} props */
function Sets({ sets, place }) {
  return h(
    Section,
    { title: "Acknowledgment sets" },
    h(
      C.Stack,
      { gap: 2 },
      ...sets.map((set) => {
        const owed = Object.entries(set.references)
          .filter(([, count]) => count > 0)
          .map(([handle]) => handle);
        return h(
          C.Box,
          { key: set.set_id, borderWidth: 1, borderColor: "border", borderRadius: "md", p: 2, fontSize: "sm" },
          h(
            C.Flex,
            { gap: 2, align: "center", wrap: "wrap" },
            h(Chip, { state: set.state, states: SET_STATES }),
            set.state === "PENDING"
              ? h(C.Text, null, "expires ", h(RelativeTime, { instant: set.expires_at }))
              : set.ended_at && h(C.Text, null, "ended ", h(RelativeTime, { instant: set.ended_at })),
            h(
              PageLink,
              { to: { search: "", pathname: pathOf({ ...place, page: "acknowledgments" }) }, fontSize: "xs" },
              "All pending sets",
            ),
          ),
          owed.length > 0 && h(C.Text, { overflowWrap: "anywhere" }, `Missing handles: ${owed.join(", ")}`),
          set.reason && h(C.Text, { color: "fg.muted", overflowWrap: "anywhere" }, set.reason),
          h(Copied, { text: set.set_id, label: "Copy the id of the set" }),
        );
      }),
    ),
  );
}

/**
 * The history of a partition, the latest transition first.
 *
 * @param {{transitions: Api.TransitionFacts[], isKept: boolean}} props
 */
function History({ transitions, isKept }) {
  if (transitions.length === 0) {
    return h(
      C.Text,
      { fontSize: "sm", color: "fg.muted" },
      isKept
        ? "The history has no change of this partition."
        : "No history is kept. Set history_days of the connection above 0.",
    );
  }
  return h(
    C.Box,
    { as: "ol", listStyleType: "none", fontSize: "sm" },
    ...transitions.map((each, index) => {
      const palette = paletteOf(each);
      return h(
        C.Grid,
        {
          as: "li",
          key: `${each.at} ${index}`,
          "data-palette": palette,
          templateColumns: "16px minmax(0, 1fr)",
          columnGap: 2,
        },
        h(
          C.Flex,
          { direction: "column", align: "center", "aria-hidden": true },
          h(C.Box, { pt: "6px" }, h(Dot, { palette, size: "9px" })),
          index < transitions.length - 1 && h(C.Box, { w: "1px", flex: 1, bg: "border.emphasized", mt: 1 }),
        ),
        h(
          C.Box,
          { pb: 3, minW: 0 },
          h(
            C.Flex,
            { gap: 2, justify: "space-between", wrap: "wrap" },
            h(C.Text, { fontWeight: "medium", overflowWrap: "anywhere", minW: 0 }, each.reason),
            h(C.Box, { color: "fg.muted", fontSize: "xs" }, h(Instant, { instant: each.at })),
          ),
          h(
            C.Text,
            { fontSize: "xs", color: "fg.muted" },
            `${each.previous_status} → ${each.status ?? "deleted"}`,
            each.by ? ` by ${each.by}` : "",
          ),
          (each.owner ?? each.previous_owner) &&
            h(
              C.Flex,
              { fontSize: "xs", gap: 1, minW: 0 },
              each.owner ? "to" : "from",
              h(Owner, { owner: each.owner ?? each.previous_owner, fontSize: "xs" }),
            ),
        ),
      );
    }),
  );
}

/** @type {Record<string, string>} */
const PALETTES_OF_KINDS = { failed: "red", "taken over": "orange" };
/** @type {Record<string, string>} */
const PALETTES_OF_STATUSES = { ASSIGNED: "cyan", COMPLETED: "green", CLOSED: "yellow" };

/** @param {{kind: string, status: string|null}} props */
function paletteOf({ kind, status }) {
  return PALETTES_OF_KINDS[kind] ?? PALETTES_OF_STATUSES[status ?? ""] ?? "gray";
}

/**
 * The shard of a partition, with links to its relatives.
 *
 * @param {{row: Api.PartitionDetail, search: string}} props
 */
function Shard({ row, search }) {
  const { shard } = row.details;
  const prefix = row.partition_key.endsWith(shard.shard_id) ? row.partition_key.slice(0, -shard.shard_id.length) : null;
  /** @param {string[]} ids */
  const relatives = (ids) =>
    ids.length === 0
      ? "none"
      : h(
          C.Flex,
          { gap: 2, wrap: "wrap" },
          ...ids.map((id) =>
            prefix === null
              ? h("span", { key: id }, id)
              : h(PageLink, { key: id, to: { search: withParameters(search, { partition: prefix + id }) } }, id),
          ),
        );
  return h(
    Section,
    { title: "Shard" },
    h(FactList, {
      facts: [
        ["Parents", relatives(shard.parents)],
        ["Children", relatives(shard.children)],
        shard.starting_hash_key !== null && [
          "First hash key",
          h(Copied, { text: shard.starting_hash_key, label: "Copy the first hash key" }),
        ],
        shard.ending_hash_key !== null && [
          "Last hash key",
          h(Copied, { text: shard.ending_hash_key, label: "Copy the last hash key" }),
        ],
        ["Ended", shard.is_ended ? "yes, everything is read" : "no"],
      ],
    }),
  );
}

/**
 * @param {{
 *   row: Api.PartitionDetail, place: Place, connection: Api.ConnectionRow|null, search: string, refresh: () => void,
 * }} props
 */
function Details({ row, place, connection, search, refresh }) {
  const [action, setAction] = useState(/** @type {string|null} */ (null));
  return h(
    C.Stack,
    { gap: 6 },
    h(
      C.Box,
      null,
      h(
        C.Flex,
        { gap: 2, align: "center", wrap: "wrap", mb: 2 },
        h(Chip, { state: row.state, size: "md" }),
        h(C.Text, { fontVariantNumeric: "tabular-nums" }, h(Time, { row })),
      ),
      h(C.Text, { fontSize: "sm", color: "fg.muted", mb: 3 }, stateOf(row.state, STATES).meaning),
      h(
        C.Flex,
        { gap: 2, wrap: "wrap", align: "center" },
        h(PartitionActionButtons, { rows: [row], connection, onPick: setAction }),
      ),
    ),
    row.last_error &&
      h(
        Section,
        { title: row.attempts > 0 ? `Failed ${plural(row.attempts, "time")} in a row` : "Last error" },
        h(Block, { text: row.last_error, label: "last error", maxH: "180px" }),
      ),
    h(
      Section,
      { title: "Now" },
      h(FactList, {
        facts: [
          ["Key", h(Copied, { text: row.partition_key, label: "Copy the key" })],
          row.owner && ["Owner", h(OwnerFacts, { owner: row.owner })],
          row.held_since && ["Held since", h(Instant, { instant: row.held_since })],
          row.leased_until && ["Lease ends", h(Instant, { instant: row.leased_until })],
          row.reopen_at && row.state !== "parked" && ["Reopens", h(Instant, { instant: row.reopen_at })],
          ["UNASSIGNED", "COMPLETED"].includes(row.status) && [
            row.status === "COMPLETED" ? "Completed" : "Waiting since",
            h(Instant, { instant: row.priority }),
          ],
          ["Lag", lagText(row.lag)],
          ["Position", h(Copied, { text: row.position ?? "", label: "Copy the position" })],
          row.items !== null && ["Items", `${countText(row.items_done ?? 0)} of ${countText(row.items)}`],
          ["Closed", plural(row.closed_count, "time")],
          [
            "Status, version",
            h(
              C.Flex,
              { gap: 1, align: "center" },
              `${row.status}, ${row.version}`,
              h(CopyButton, { text: String(row.version), label: "Copy the version" }),
            ),
          ],
        ],
      }),
    ),
    row.landed.length > 0 && h(Landed, { batches: row.landed }),
    row.acknowledgment_sets.length > 0 &&
      h(Sets, { sets: /** @type {AcknowledgmentSet[]} */ (row.acknowledgment_sets), place }),
    row.gaps.length > 0 &&
      h(
        Section,
        { title: "Lost data", aside: h(ManualLink, { topic: "data-loss" }) },
        h(
          C.Stack,
          { as: "ul", ps: 4, gap: 1, fontSize: "sm", color: "red.fg" },
          ...row.gaps.map((gap) => h(C.Box, { as: "li", key: gap, overflowWrap: "anywhere" }, gap)),
        ),
      ),
    row.failed_items.length > 0 &&
      h(
        Section,
        { title: "Unreadable items", aside: h(ManualLink, { topic: "unreadable" }) },
        h(
          C.Stack,
          { as: "ul", ps: 4, gap: 1, fontSize: "sm" },
          ...row.failed_items.map((each, index) =>
            h(
              C.Box,
              { as: "li", key: index, overflowWrap: "anywhere" },
              each.item === null ? "" : `Item ${each.item}: `,
              each.reason,
            ),
          ),
        ),
      ),
    row.details.shard !== undefined && h(Shard, { row, search }),
    h(Section, { title: "History" }, h(History, { transitions: row.transitions, isKept: row.has_history })),
    h(
      Section,
      row.unreadable_progress === null
        ? { title: "Progress" }
        : { title: "Progress (unreadable)", aside: h(ManualLink, { topic: "unreadable" }) },
      h(Block, { text: row.unreadable_progress ?? JSON.stringify(row.progress, null, 2), label: "progress" }),
    ),
    action !== null &&
      h(ActionDialog, {
        place,
        action,
        rows: [row],
        onClose: () => {
          setAction(null);
          refresh();
        },
      }),
  );
}

/**
 * The drawer.
 *
 * @param {{
 *   place: Place, connection: Api.ConnectionRow|null, partitionKey: string, search: string, onClose: () => void,
 * }} props
 *     `connection` is the row of the place's connection in `/connections`
 */
export function PartitionDrawer({ place, connection, partitionKey, search, onClose }) {
  const query = new URLSearchParams({ key: partitionKey });
  const live = useLive(sourceApi(place.connection, place.source, `partition?${query}`));
  const close = useRef(/** @type {HTMLElement|null} */ (null));
  const first = useRef(partitionKey);
  useEffect(() => {
    // The link to a relative was clicked, and is gone.
    if (first.current !== partitionKey) close.current?.focus();
    first.current = partitionKey;
  }, [partitionKey]);
  const { response: row, problem, nextAt, refresh } = live;
  const isGone = problem?.kind === "missing";
  return h(
    C.Drawer.Root,
    {
      open: true,
      size: { base: "full", md: "lg" },
      onOpenChange: ({ open }) => !open && onClose(),
      initialFocusEl: () => close.current,
      // The row may have been drawn again; the key finds it.
      finalFocusEl: () =>
        [...document.querySelectorAll("[data-key]")]
          .find((each) => each.getAttribute("data-key") === partitionKey)
          ?.querySelector("[data-opens]") ?? null,
    },
    h(
      C.Portal,
      null,
      h(C.Drawer.Backdrop),
      h(
        C.Drawer.Positioner,
        null,
        h(
          C.Drawer.Content,
          { "data-drawer": partitionKey, bg: "bg.panel" },
          h(
            C.Drawer.Header,
            {
              display: "flex",
              alignItems: "flex-start",
              gap: 2,
              borderBottomWidth: 1,
              borderColor: "border.emphasized",
              py: 3,
            },
            h(
              C.Box,
              { flex: 1, minW: 0 },
              h(C.Text, { fontSize: "xs", color: "fg.muted", truncate: true }, `Partition of ${place.source}`),
              h(C.Drawer.Title, { fontSize: "md", overflowWrap: "anywhere", dir: "auto" }, partitionKey),
            ),
            h(CopyButton, { text: partitionKey, label: "Copy the key of the partition", size: "xs" }),
            h(
              C.Drawer.CloseTrigger,
              { asChild: true, position: "static" },
              h(C.CloseButton, { size: "xs", ref: close, "aria-label": "Close", "data-close": true }),
            ),
          ),
          h(
            C.Drawer.Body,
            { key: partitionKey, py: 4 },
            isGone
              ? h(EmptyState, {
                  title: "This partition no longer exists",
                  text: "It was deleted, or removed with its shard. A later scan of the source may create it again.",
                  kind: "missing",
                })
              : row === null
                ? problem === null
                  ? h(Loading, { what: "the partition" })
                  : h(ProblemPage, { problem, connection: place.connection, nextAt, refresh })
                : h(
                    Fragment,
                    null,
                    problem !== null && h(StaleNote, { problem, connection: place.connection, nextAt, refresh }),
                    h(Details, { row, place, connection, search, refresh }),
                  ),
          ),
        ),
      ),
    ),
  );
}
