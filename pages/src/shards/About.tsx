import { Flex, Stack, Text } from "@chakra-ui/react";

import { Chip } from "../components/Chip";
import { ownerLabel, shardLabel } from "../format/text";
import { lagText } from "../format/time";
import type { ShardBox } from "../types";
import { shareText } from "./drawing";

export function About({ box }: { box: ShardBox }) {
  const { shard } = box;
  return (
    <Stack gap={1}>
      <Flex gap={2} align="center" wrap="wrap">
        <Text fontWeight="semibold" overflowWrap="anywhere">
          {shard.shard_id}
        </Text>
        <Chip state={shard.state} />
        {shard.owner && (
          <Text title={shard.owner.name} overflowWrap="anywhere" minW={0}>
            {ownerLabel(shard.owner)}
          </Text>
        )}
        {shard.lag !== null && shard.state !== "completed" && (
          <Text fontVariantNumeric="tabular-nums">{`lag ${lagText(shard.lag)}`}</Text>
        )}
      </Flex>
      <Text color="fg.muted" fontSize="xs" overflowWrap="anywhere">
        {[
          ...(shard.starting_hash_key === null
            ? []
            : [`${shareText(box.share)} of the hash keys`, `${shard.starting_hash_key} to ${shard.ending_hash_key}`]),
          shard.parents.length === 0
            ? null
            : `${shard.parents.length > 1 ? "merged from" : "child of"} ${shard.parents.map(shardLabel).join(", ")}`,
          shard.children.length === 0
            ? null
            : `${shard.children.length > 1 ? "split into" : "parent of"} ${shard.children.map(shardLabel).join(", ")}`,
        ]
          .filter(Boolean)
          .join(" · ")}
      </Text>
    </Stack>
  );
}
