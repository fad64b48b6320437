/**
 * The family tree of a stream's shards: hash keys from top to bottom, to scale, generations from left to right. The right
 * edge is now: the current owners of each part of the stream, and the holes. Above it is the history that shards wait for.
 */

import { Box } from "@chakra-ui/react";

import { Chip } from "../components/Chip";
import { Owner } from "../components/Owner";
import { PageLink } from "../components/PageLink";
import { Shortened } from "../components/Shortened";
import { shardLabel } from "../format/text";
import { lagText } from "../format/time";
import { bySeverity } from "../states";
import { SmallTable } from "../table/SmallTable";
import type { Layout, ShardBox } from "../types";
import { withParameters } from "../urls";
import { shareText } from "./drawing";

export function ListView({ layout, search }: { layout: Layout; search: string }) {
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
