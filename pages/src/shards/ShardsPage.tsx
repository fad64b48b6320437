import { useLive } from "../api/live";
import type { ShardTrees, StreamTree } from "../api/schema";
import { EmptyState } from "../components/EmptyState";
import { LiveContent } from "../components/LiveContent";
import type { PageProps } from "../types";
import { sourceApi } from "../urls";
import { Stream } from "./Stream";

/** The page. */
export function ShardsPage({ place, parameters, change, search }: PageProps) {
  const live = useLive<ShardTrees>(sourceApi(place.connection, place.source, "shards"));
  return (
    <LiveContent live={live} what="shards" connection={place.connection} rows={8}>
      {({ streams, complete }) => {
        if (streams.length === 0) {
          return (
            <EmptyState
              key="none"
              title="No shards"
              text="No shard is known yet. The page Partitions shows what this source has."
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
