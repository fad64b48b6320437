import { Box, Span, Text } from "@chakra-ui/react";

import type { SupervisorWithVerbs } from "../api/schema";
import { PageLink } from "../components/PageLink";
import { RelativeTime } from "../components/RelativeTime";
import { Section } from "../components/Section";
import { Shortened } from "../components/Shortened";
import { plural } from "../format/text";
import { byLag } from "../states";
import { PHONE_WIDTH, SmallTable } from "../table/SmallTable";
import { withParameters } from "../urls";
import { lagOf } from "./records";

/** The lag of each partition, the worst first. */
export function LagOfShards({ status, search }: { status: SupervisorWithVerbs; search: string }) {
  const { lag } = status;
  const rows = byLag(lag.partitions);
  const maximum = Math.max(1, ...rows.map((row) => row.lag ?? 0));
  return (
    <Section
      title="Lag of each partition"
      aside={
        lag.at !== null && (
          <Text fontSize="xs" color="fg.muted">
            {"as of "}
            <RelativeTime instant={lag.at} />
          </Text>
        )
      }
    >
      {rows.length === 0 ? (
        <Text fontSize="sm" color="fg.muted">
          No job has reported a lag yet.
        </Text>
      ) : (
        <>
          <Text fontSize="sm" color="fg.muted" mb={2}>
            {`Longest ${lagOf(lag.oldest_ms)}, average ${lagOf(lag.average_ms)}, sum ${lagOf(lag.sum_ms)}`}
            {lag.unknown > 0 && `; unknown for ${plural(lag.unknown, "partition")}`}.
          </Text>
          <SmallTable
            label="Lag of each partition"
            rows={rows}
            keyOf={(row) => row.key}
            narrowBelow={PHONE_WIDTH}
            columns={[
              {
                name: "partition",
                title: "Partition",
                cell: (row) => (
                  <PageLink
                    to={{ search: withParameters(search, { partition: row.key }) }}
                    display="flex"
                    minW={0}
                    maxW="full"
                    aria-label={row.key}
                  >
                    <Shortened text={row.key} tail={20} />
                  </PageLink>
                ),
              },
              {
                name: "lag",
                title: "Lag",
                align: "end",
                width: "110px",
                cell: (row) => (row.lag === null ? <Span color="fg.muted">{lagOf(null)}</Span> : lagOf(row.lag)),
              },
              {
                name: "bar",
                title: "",
                width: "35%",
                cell: (row) => (
                  <Box h="6px" mt={2} bg="bg.emphasized" borderRadius="full" overflow="hidden" aria-hidden>
                    <Box h="full" bg="blue.solid" style={{ width: `${((row.lag ?? 0) / maximum) * 100}%` }} />
                  </Box>
                ),
              },
            ]}
          />
        </>
      )}
    </Section>
  );
}
