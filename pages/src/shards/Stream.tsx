import { Box, Button, ButtonGroup, Flex, Input, NativeSelect, Text } from "@chakra-ui/react";
import { useCallback, useMemo } from "react";

import type { StreamTree } from "../api/schema";
import { Choice } from "../chart/Choice";
import { Legend } from "../chart/Legend";
import { ViewChoice } from "../chart/ViewChoice";
import { Icon } from "../components/Icon";
import { ManualLink } from "../components/ManualLink";
import { useTypedText } from "../components/useTypedText";
import { plural } from "../format/text";
import { STATES } from "../states";
import type { Change, ShardBox } from "../types";
import { History } from "./History";
import { ListView } from "./ListView";
import { Picture } from "./Picture";
import { matches, shareText } from "./drawing";
import { isUneven, layOut } from "./layout";

export function Stream({
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

  const counts = new Map<string, number>();
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
              aria-label="Readable: make nearly every shard tall enough for its name"
            >
              Readable
            </Button>
            <Button
              onClick={() => change({ zoom: "fit" })}
              aria-label="Fit: show the whole stream"
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
          Some shards are missing here: the source has more partitions than this page reads.
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
