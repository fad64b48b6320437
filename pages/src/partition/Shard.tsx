import { Flex } from "@chakra-ui/react";

import type { PartitionDetail, ShardNode } from "../api/schema";
import { FactList } from "../components/FactList";
import { PageLink } from "../components/PageLink";
import { Section } from "../components/Section";
import { withParameters } from "../urls";
import { Copied } from "./Copied";

/** The shard of a partition, with links to its relatives. */
export function Shard({ row, search }: { row: PartitionDetail; search: string }) {
  const shard = row.details.shard as ShardNode;
  const prefix = row.partition_key.endsWith(shard.shard_id) ? row.partition_key.slice(0, -shard.shard_id.length) : null;

  const relatives = (ids: string[]) =>
    ids.length === 0 ? (
      "none"
    ) : (
      <Flex gap={2} wrap="wrap">
        {ids.map((id) =>
          prefix === null ? (
            <span key={id}>{id}</span>
          ) : (
            <PageLink key={id} to={{ search: withParameters(search, { partition: prefix + id }) }}>
              {id}
            </PageLink>
          ),
        )}
      </Flex>
    );
  return (
    <Section title="Shard">
      <FactList
        facts={[
          ["Parents", relatives(shard.parents)],
          ["Children", relatives(shard.children)],
          shard.starting_hash_key !== null && [
            "First hash key",
            <Copied text={shard.starting_hash_key} label="Copy the first hash key" />,
          ],
          shard.ending_hash_key !== null && [
            "Last hash key",
            <Copied text={shard.ending_hash_key} label="Copy the last hash key" />,
          ],
          ["Ended", shard.is_ended ? "yes, everything has been read" : "no"],
        ]}
      />
    </Section>
  );
}
