/**
 * The family tree of a stream's shards: hash keys from top to bottom, to scale, generations from left to right. The right
 * edge is now: the current owners of each part of the stream, and the holes. Above it is the history that shards wait for.
 */

import { C, h, useCallback, useMemo } from "./host.js";
import { Icon } from "./icons.js";
import { useLive } from "./live.js";
import { ViewChoice, Choice, Legend } from "./chart_controls.js";
import { Chip, ManualLink, Owner, Shortened, PageLink } from "./widgets.js";
import { sourceApi, withParameters } from "./urls.js";
import { EmptyState, LiveContent } from "./problems.js";
import { isUneven, layOut } from "./shard_layout.js";
import { Picture, matches, shareText } from "./shard_picture.js";
import { SmallTable } from "./small_table.js";
import { bySeverity, STATES } from "./states.js";
import { countText, plural, shardLabel } from "./text.js";
import { lagText } from "./time.js";
import { useTypedText } from "./typing.js";

/** @param {{layout: Layout, search: string}} props */
function ListView({ layout, search }) {
  return h(
    C.Box,
    { overflow: "auto", flex: 1, minH: 0 },
    h(SmallTable, {
      label: "Shards",
      rows: bySeverity(layout.boxes, ({ shard }) => shard.state),
      keyOf: (box) => box.shard.shard_id,
      columns: [
        {
          name: "shard",
          title: "Shard",
          cell: ({ shard }) =>
            shard.partition_key
              ? h(
                  PageLink,
                  {
                    to: { search: withParameters(search, { partition: shard.partition_key }) },
                    minW: 0,
                    "aria-label": shard.shard_id,
                  },
                  h(Shortened, { text: shard.shard_id }),
                )
              : h(Shortened, { text: shard.shard_id }),
        },
        { name: "state", title: "State", cell: ({ shard }) => h(Chip, { state: shard.state }) },
        { name: "generation", title: "Generation", align: "end", cell: (box) => box.from + 1 },
        ...(layout.hasHashKeys
          ? [
              {
                name: "share",
                title: "Hash keys",
                align: /** @type {const} */ ("end"),
                cell: (/** @type {Box} */ box) => shareText(box.share),
              },
            ]
          : []),
        { name: "owner", title: "Owner", cell: ({ shard }) => h(Owner, { owner: shard.owner }) },
        { name: "lag", title: "Lag", align: "end", cell: ({ shard }) => lagText(shard.lag) },
        { name: "parents", title: "Parents", cell: ({ shard }) => shard.parents.map(shardLabel).join(", ") || "–" },
        { name: "children", title: "Children", cell: ({ shard }) => shard.children.map(shardLabel).join(", ") || "–" },
      ],
    }),
  );
}

/**
 * The items that are read before the changes of a stream, by state. Shards wait until all of them are delivered.
 *
 * @param {{states: Record<string, number>}} props
 */
function History({ states }) {
  const total = Object.values(states).reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  const done = states.completed ?? 0;
  const rest = Object.entries(STATES)
    .filter(([state]) => state !== "completed" && state in states)
    .map(([state, { label }]) => `${countText(states[state])} ${label.toLowerCase()}`);
  return h(
    C.Text,
    { fontSize: "sm", color: "fg.muted", "data-history": done === total ? "delivered" : "waiting" },
    done === total
      ? `History: delivered, ${plural(total, "partition")}.`
      : `History: ${countText(done)} of ${plural(total, "partition")} delivered, ${rest.join(", ")}. The shards wait for it.`,
  );
}

/**
 * The page.
 *
 * @param {{place: Place, parameters: URLSearchParams, change: Change, search: string}} props
 */
export function ShardsPage({ place, parameters, change, search }) {
  const live = useLive(sourceApi(place.connection, place.source, "shards"));
  return h(LiveContent, {
    live,
    what: "shards",
    connection: place.connection,
    rows: 8,
    children: ({ streams, complete }) => {
      if (streams.length === 0) {
        return h(EmptyState, {
          key: "none",
          title: "No shards",
          text: "No shard is known yet. Open Partitions to see what this source has.",
          icon: "tree",
          kind: "empty",
        });
      }
      /** @param {Api.StreamTree} stream */
      const name = (stream) => `${stream.stream}:${stream.epoch}`;
      const stream = streams.find((/** @type {Api.StreamTree} */ each) => name(each) === parameters.get("stream")) ?? streams[streams.length - 1];
      return h(Stream, { key: name(stream), stream, streams, complete, name, parameters, change, search });
    },
  });
}

/**
 * @param {{
 *   stream: Api.StreamTree, streams: Api.StreamTree[], complete: boolean, name: (stream: Api.StreamTree) => string,
 *   parameters: URLSearchParams, change: Change, search: string,
 * }} props
 */
function Stream({ stream, streams, complete, name, parameters, change, search }) {
  const layout = useMemo(() => layOut(stream), [stream]);
  const [find, setFind] = useTypedText(parameters.get("search") ?? "", (typed) => change({ search: typed }));
  const zoomed = Number(parameters.get("zoom") ?? 1);
  const zoom =
    parameters.get("zoom") === "fit"
      ? "fit"
      : Number.isFinite(zoomed) && zoomed > 0
        ? Math.min(64, Math.max(1 / 64, zoomed))
        : 1;
  const isList = parameters.get("as") === "list";
  const scale = parameters.get("scale") ?? (isUneven(layout.boxes) ? "compact" : "keys");
  const onOpen = useCallback(
    (/** @type {Box} */ box) => box.shard.partition_key && change({ partition: box.shard.partition_key }, { keep: true }),
    [change],
  );
  /** @type {Map<string, number>} */
  const counts = new Map();
  layout.boxes.forEach(({ shard }) => counts.set(shard.state, (counts.get(shard.state) ?? 0) + 1));
  /** @param {number} factor */
  const zoomBy = (factor) => change({ zoom: String((zoom === "fit" ? 1 : zoom) * factor) });
  const summary = `${plural(stream.shards.length, "shard")}, ${plural(layout.generations, "generation")}, ${plural(layout.splits, "split")}, ${plural(layout.merges, "merge")}`;
  return h(
    C.Flex,
    { direction: "column", flex: 1, minH: 0, gap: 2 },
    h(
      C.Flex,
      { gap: 2, wrap: "wrap", align: "center" },
      streams.length > 1 &&
        h(
          C.NativeSelect.Root,
          { size: "sm", w: "auto", maxW: "320px" },
          h(
            C.NativeSelect.Field,
            {
              "aria-label": "Stream",
              value: name(stream),
              onChange: (event) => change({ stream: event.target.value }),
            },
            ...streams.map((each) =>
              h("option", { key: name(each), value: name(each) }, `${each.stream} (${each.epoch})`),
            ),
          ),
          h(C.NativeSelect.Indicator),
        ),
      h(C.Input, {
        size: "sm",
        type: "search",
        w: { base: "full", sm: "200px" },
        "aria-label": "Find a shard or an owner",
        placeholder: "Find a shard or an owner",
        value: find,
        onChange: (event) => setFind(event.target.value),
      }),
      !isList &&
        h(
          C.ButtonGroup,
          { size: "xs", variant: "outline", attached: true, "aria-label": "Zoom", role: "group" },
          h(C.Button, { onClick: () => zoomBy(0.5), "aria-label": "Zoom out" }, "−"),
          h(
            C.Button,
            {
              onClick: () => change({ zoom: null }),
              "aria-label": "Readable: zoom until nearly every shard shows its name",
            },
            "Readable",
          ),
          h(
            C.Button,
            {
              onClick: () => change({ zoom: "fit" }),
              "aria-label": "Fit: zoom until the whole stream is visible",
              "aria-pressed": zoom === "fit",
            },
            "Fit",
          ),
          h(C.Button, { onClick: () => zoomBy(2), "aria-label": "Zoom in" }, "+"),
        ),
      !isList &&
        layout.hasHashKeys &&
        h(Choice, {
          label: "Height of a shard",
          value: scale === "compact" ? "compact" : "keys",
          options: [
            ["keys", "To scale"],
            ["compact", "Compact"],
          ],
          onChange: (name) => change({ scale: name }),
        }),
      h(ViewChoice, { value: isList ? "list" : "picture", onChange: (value) => change({ as: value }) }),
      h(C.Text, { fontSize: "sm", color: "fg.muted", ms: { lg: "auto" } }, summary),
    ),
    h(History, { states: stream.history }),
    layout.holes.length > 0 &&
      h(
        C.Flex,
        {
          gap: 2,
          align: "center",
          fontSize: "sm",
          color: "red.fg",
          bg: "bg.error",
          borderRadius: "sm",
          px: 2,
          py: 1,
          "data-holes": layout.holes.length,
        },
        h(Icon, { name: "alert" }),
        h(
          C.Text,
          { as: "span", flex: 1 },
          `${plural(layout.holes.length, "hole")}: no shard lease covers ${shareText(layout.holes.reduce((sum, hole) => sum + hole.share, 0))} of the hash keys. Start a run with a shard sync to repair it.`,
        ),
        h(ManualLink, { topic: "hole" }),
      ),
    complete === false &&
      h(
        C.Text,
        { fontSize: "sm", color: "fg.muted" },
        "The source has more partitions than this page reads: some shards are missing.",
      ),
    h(Legend, {
      entries: Object.entries(STATES)
        .filter(([state]) => counts.has(state))
        .map(([state, { label, palette }]) => ({ label, palette, count: counts.get(state) })),
    }),
    isList
      ? h(ListView, {
          layout:
            find.trim() === ""
              ? layout
              : { ...layout, boxes: layout.boxes.filter((box) => matches(box, find.trim().toLowerCase())) },
          search,
        })
      : h(
          C.Box,
          { flex: 1, minH: 0, display: "flex", flexDirection: "column" },
          h(Picture, {
            layout,
            isCompact: scale === "compact",
            zoom,
            find,
            onOpen,
            label: `Family tree of ${stream.stream}: ${summary}`,
          }),
        ),
  );
}
