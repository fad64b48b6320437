import { Box, Text } from "@chakra-ui/react";

import type { Timeline } from "../api/schema";
import { Chip } from "../components/Chip";
import { Instant } from "../components/Instant";
import { Owner } from "../components/Owner";
import { PageLink } from "../components/PageLink";
import { Shortened } from "../components/Shortened";
import { ENDS } from "../states";
import { SmallTable } from "../table/SmallTable";
import { withParameters } from "../urls";

export function ListView({ response, search }: { response: Timeline; search: string }) {
  const rows = response.partitions
    .flatMap((line) =>
      line.holdings.map((holding, index) => ({
        key: `${line.partition_key} ${index}`,
        partition: line.partition_key,
        holding,
      })),
    )
    .sort((a, b) => ((a.holding.began_at ?? "") < (b.holding.began_at ?? "") ? 1 : -1));
  return (
    <Box overflow="auto" flex={1} minH={0}>
      <SmallTable
        label="Owners of partitions over time"
        rows={rows}
        keyOf={(row) => row.key}
        columns={[
          {
            name: "partition",
            title: "Partition",
            cell: (row) => (
              <PageLink
                to={{ search: withParameters(search, { partition: row.partition }) }}
                minW={0}
                maxW="full"
                aria-label={row.partition}
              >
                <Shortened text={row.partition} />
              </PageLink>
            ),
          },
          { name: "owner", title: "Owner", cell: ({ holding }) => <Owner owner={holding.owner} /> },
          { name: "began", title: "From", cell: ({ holding }) => <Instant instant={holding.began_at} /> },
          {
            name: "ended",
            title: "To",
            cell: ({ holding }) =>
              holding.ended_at === null ? "now" : <Instant instant={holding.ended_at} withAge={false} />,
          },
          { name: "end", title: "Ended", cell: ({ holding }) => <Chip state={holding.end} states={ENDS} /> },
          {
            name: "reason",
            title: "Reason",
            cell: ({ holding }) => (
              <Text overflowWrap="anywhere" fontSize="xs">
                {holding.reason}
                {holding.by ? ` (${holding.by})` : ""}
              </Text>
            ),
          },
        ]}
      />
    </Box>
  );
}
