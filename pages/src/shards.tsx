/**
 * The family tree of a stream's shards: hash keys from top to bottom, to scale, generations from left to right. The right
 * edge is now: the current owners of each part of the stream, and the holes. Above it is the history that shards wait for.
 */

import { Box, Button, ButtonGroup, Flex, Input, NativeSelect, Text } from "@chakra-ui/react";
import { useCallback, useMemo } from "react";

import { ViewChoice, Choice, Legend } from "./chart_controls";
import { Icon } from "./icons";
import { useLive } from "./live";
import { EmptyState, LiveContent } from "./problems";
import { isUneven, layOut } from "./shard_layout";
import { Picture, matches, shareText } from "./shard_picture";
import { SmallTable } from "./small_table";
import { bySeverity, STATES } from "./states";
import { countText, plural, shardLabel } from "./text";
import { lagText } from "./time";
import { useTypedText } from "./typing";
import { sourceApi, withParameters } from "./urls";
import { Chip, ManualLink, Owner, Shortened, PageLink } from "./widgets";
import type { StreamTree } from "./schema";
import type { Place, Change, Layout, ShardBox } from "./types";

function ListView({ layout, search }: { layout: Layout; search: string }) {
  return (
    <Box overflow="auto" flex={1} minH={0}>
      <SmallTable
        label="Shards"
        rows={bySeverity(layout.boxes, ({ shard }) => shard.state)}
        keyOf={(box) => box.shard.shard_id}
        columns={[
          {
            name: "shard",
            title: "Shard",
            cell: ({ shard }) =>
              shard.partition_key ? (
                <PageLink
                  to={{ search: withParameters(search, { partition: shard.partition_key }) }}
                  minW={0}
                  aria-label={shard.shard_id}
                >
                  <Shortened text={shard.shard_id} />
                </PageLink>
              ) : (
                <Shortened text={shard.shard_id} />
              ),
          },
          { name: "state", title: "State", cell: ({ shard }) => <Chip state={shard.state} /> },
          { name: "generation", title: "Generation", align: "end", cell: (box) => box.from + 1 },
          ...(layout.hasHashKeys
            ? [
                {
                  name: "share",
                  title: "Hash keys",
                  align: "end" as const,
                  cell: (box: ShardBox) => shareText(box.share),
                },
              ]
            : []),
          { name: "owner", title: "Owner", cell: ({ shard }) => <Owner owner={shard.owner} /> },
          { name: "lag", title: "Lag", align: "end", cell: ({ shard }) => lagText(shard.lag) },
          { name: "parents", title: "Parents", cell: ({ shard }) => shard.parents.map(shardLabel).join(", ") || "–" },
          {
            name: "children",
            title: "Children",
            cell: ({ shard }) => shard.children.map(shardLabel).join(", ") || "–",
          },
        ]}
      />
    </Box>
  );
}

/** The items that are read before the changes of a stream, by state. Shards wait until all of them are delivered. */
function History({ states }: { states: Record<string, number> }) {
  const total = Object.values(states).reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  const done = states.completed ?? 0;
  const rest = Object.entries(STATES)
    .filter(([state]) => state !== "completed" && state in states)
    .map(([state, { label }]) => `${countText(states[state])} ${label.toLowerCase()}`);
  return (
    <Text fontSize="sm" color="fg.muted" data-history={done === total ? "delivered" : "waiting"}>
      {done === total
        ? `History: delivered, ${plural(total, "partition")}.`
        : `History: ${countText(done)} of ${plural(total, "partition")} delivered, ${rest.join(", ")}. The shards wait for it.`}
    </Text>
  );
}

/** The page. */
export function ShardsPage({
  place,
  parameters,
  change,
  search,
}: {
  place: Place;
  parameters: URLSearchParams;
  change: Change;
  search: string;
}) {
  const live = useLive(sourceApi(place.connection, place.source, "shards"));
  return (
    <LiveContent live={live} what="shards" connection={place.connection} rows={8}>
      {({ streams, complete }) => {
        if (streams.length === 0) {
          return (
            <EmptyState
              key="none"
              title="No shards"
              text="No shard is known yet. Open Partitions to see what this source has."
              icon="tree"
              kind="empty"
            />
          );
        }

        const name = (stream: StreamTree) => `${stream.stream}:${stream.epoch}`;
        const stream =
          streams.find((each: StreamTree) => name(each) === parameters.get("stream")) ?? streams[streams.length - 1];
        return (
          <Stream
            key={name(stream)}
            stream={stream}
            streams={streams}
            complete={complete}
            name={name}
            parameters={parameters}
            change={change}
            search={search}
          />
        );
      }}
    </LiveContent>
  );
}

function Stream({
  stream,
  streams,
  complete,
  name,
  parameters,
  change,
  search,
}: {
  stream: StreamTree;
  streams: StreamTree[];
  complete: boolean;
  name: (stream: StreamTree) => string;
  parameters: URLSearchParams;
  change: Change;
  search: string;
}) {
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
    (box: ShardBox) => box.shard.partition_key && change({ partition: box.shard.partition_key }, { keep: true }),
    [change],
  );

  const counts: Map<string, number> = new Map();
  layout.boxes.forEach(({ shard }) => counts.set(shard.state, (counts.get(shard.state) ?? 0) + 1));

  const zoomBy = (factor: number) => change({ zoom: String((zoom === "fit" ? 1 : zoom) * factor) });
  const summary = `${plural(stream.shards.length, "shard")}, ${plural(layout.generations, "generation")}, ${plural(layout.splits, "split")}, ${plural(layout.merges, "merge")}`;
  return (
    <Flex direction="column" flex={1} minH={0} gap={2}>
      <Flex gap={2} wrap="wrap" align="center">
        {streams.length > 1 && (
          <NativeSelect.Root size="sm" w="auto" maxW="320px">
            <NativeSelect.Field
              aria-label="Stream"
              value={name(stream)}
              onChange={(event) => change({ stream: event.target.value })}
            >
              {streams.map((each) => (
                <option key={name(each)} value={name(each)}>
                  {`${each.stream} (${each.epoch})`}
                </option>
              ))}
            </NativeSelect.Field>
            <NativeSelect.Indicator />
          </NativeSelect.Root>
        )}
        <Input
          size="sm"
          type="search"
          w={{ base: "full", sm: "200px" }}
          aria-label="Find a shard or an owner"
          placeholder="Find a shard or an owner"
          value={find}
          onChange={(event) => setFind(event.target.value)}
        />
        {!isList && (
          <ButtonGroup size="xs" variant="outline" attached aria-label="Zoom" role="group">
            <Button onClick={() => zoomBy(0.5)} aria-label="Zoom out">
              −
            </Button>
            <Button
              onClick={() => change({ zoom: null })}
              aria-label="Readable: zoom until nearly every shard shows its name"
            >
              Readable
            </Button>
            <Button
              onClick={() => change({ zoom: "fit" })}
              aria-label="Fit: zoom until the whole stream is visible"
              aria-pressed={zoom === "fit"}
            >
              Fit
            </Button>
            <Button onClick={() => zoomBy(2)} aria-label="Zoom in">
              +
            </Button>
          </ButtonGroup>
        )}
        {!isList && layout.hasHashKeys && (
          <Choice
            label="Height of a shard"
            value={scale === "compact" ? "compact" : "keys"}
            options={[
              ["keys", "To scale"],
              ["compact", "Compact"],
            ]}
            onChange={(name) => change({ scale: name })}
          />
        )}
        <ViewChoice value={isList ? "list" : "picture"} onChange={(value) => change({ as: value })} />
        <Text fontSize="sm" color="fg.muted" ms={{ lg: "auto" }}>
          {summary}
        </Text>
      </Flex>
      <History states={stream.history} />
      {layout.holes.length > 0 && (
        <Flex
          gap={2}
          align="center"
          fontSize="sm"
          color="red.fg"
          bg="bg.error"
          borderRadius="sm"
          px={2}
          py={1}
          data-holes={layout.holes.length}
        >
          <Icon name="alert" />
          <Text as="span" flex={1}>
            {`${plural(layout.holes.length, "hole")}: no shard lease covers ${shareText(layout.holes.reduce((sum, hole) => sum + hole.share, 0))} of the hash keys. Start a run with a shard sync to repair it.`}
          </Text>
          <ManualLink topic="hole" />
        </Flex>
      )}
      {complete === false && (
        <Text fontSize="sm" color="fg.muted">
          The source has more partitions than this page reads: some shards are missing.
        </Text>
      )}
      <Legend
        entries={Object.entries(STATES)
          .filter(([state]) => counts.has(state))
          .map(([state, { label, palette }]) => ({ label, palette, count: counts.get(state) }))}
      />
      {isList ? (
        <ListView
          layout={
            find.trim() === ""
              ? layout
              : { ...layout, boxes: layout.boxes.filter((box) => matches(box, find.trim().toLowerCase())) }
          }
          search={search}
        />
      ) : (
        <Box flex={1} minH={0} display="flex" flexDirection="column">
          <Picture
            layout={layout}
            isCompact={scale === "compact"}
            zoom={zoom}
            find={find}
            onOpen={onOpen}
            label={`Family tree of ${stream.stream}: ${summary}`}
          />
        </Box>
      )}
    </Flex>
  );
}
