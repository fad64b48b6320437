/** The tab of a DAG run and of a task instance: the partitions that it holds or held. */

import { Badge, Box, Flex, Heading, Text } from "@chakra-ui/react";
import { Fragment } from "react";

import { useLive } from "../api/live";
import type { RunPartition, RunPartitions } from "../api/schema";
import { Chip } from "../components/Chip";
import { EmptyState } from "../components/EmptyState";
import { LiveContent } from "../components/LiveContent";
import { ManualLink } from "../components/ManualLink";
import { Owner } from "../components/Owner";
import { PageLink } from "../components/PageLink";
import { Shortened } from "../components/Shortened";
import { plural } from "../format/text";
import { lagText } from "../format/time";
import { Freshness } from "../frame/Freshness";
import { Progress } from "../partitions/Progress";
import { Time } from "../partitions/Time";
import { SmallTable } from "../table/SmallTable";
import { pathOf, runApi, withParameters } from "../urls";

/** Each response may read many pages of history. */
const EVERY_SECONDS = 5;

/** The tab. @param props as Airflow gives them */
export function TaskTab(props: { dagId: string; runId: string; taskId?: string; mapIndex?: string }) {
  const live = useLive<RunPartitions>(runApi(props), { every: EVERY_SECONDS });
  const what = props.taskId ? "task instance" : "run";
  return (
    <Box minW={0} p={2}>
      <Flex justify="space-between" align="center" mb={2} gap={2}>
        <Heading as="h2" size="md">
          Ingestion
        </Heading>
        <Freshness live={live} />
      </Flex>
      <LiveContent live={live} what="partitions" rows={4}>
        {({ partitions: rows, complete, unreachable }) => {
          const held = rows.filter((row: RunPartition) => row.is_held_now).length;
          return (
            <Fragment key="partitions">
              {unreachable.length > 0 && (
                <Text fontSize="sm" color="orange.fg" mb={2} role="alert" overflowWrap="anywhere">
                  {`The store is unavailable: ${unreachable.join(", ")}. Its partitions are not shown. Restore the store. This page retries automatically. `}
                  <ManualLink topic="store" />
                </Text>
              )}
              {rows.length === 0 ? (
                <EmptyState
                  title={`This ${what} holds no partitions`}
                  text={`The history shows none either. Leases appear here while a job of this ${what} runs.`}
                  icon="tree"
                  kind="empty"
                />
              ) : (
                <>
                  <Text fontSize="sm" color="fg.muted" mb={2}>
                    {`Holds ${plural(held, "partition")} now, and held ${plural(rows.length - held, "other")} before.`}
                    {/* The note about an unavailable store is shown already. */}
                    {!complete && unreachable.length === 0 && " Not all are shown."}
                  </Text>
                  <SmallTable
                    label={`Partitions of this ${what}`}
                    rows={rows}
                    keyOf={(row) => `${row.connection_id} ${row.source} ${row.partition_key}`}
                    columns={[
                      {
                        name: "partition",
                        title: "Partition",
                        cell: (row) => (
                          <Box minW={0}>
                            <PageLink
                              to={{
                                pathname: pathOf({ connection: row.connection_id, source: row.source }),
                                search: withParameters("", { partition: row.partition_key }),
                              }}
                              minW={0}
                              maxW="full"
                              aria-label={row.partition_key}
                            >
                              <Shortened text={row.partition_key} />
                            </PageLink>
                            <Flex fontSize="xs" color="fg.muted" minW={0}>
                              <PageLink
                                to={pathOf({ connection: row.connection_id, source: row.source })}
                                color="fg.muted"
                                minW={0}
                                aria-label={`${row.source} · ${row.connection_id}`}
                              >
                                <Shortened text={`${row.source} · ${row.connection_id}`} />
                              </PageLink>
                            </Flex>
                          </Box>
                        ),
                      },
                      {
                        name: "held",
                        title: "Lease",
                        cell: (row) => (
                          <Badge
                            variant={row.is_held_now ? "subtle" : "outline"}
                            colorPalette={row.is_held_now ? "cyan" : "gray"}
                          >
                            {row.is_held_now ? "held now" : "held before"}
                          </Badge>
                        ),
                      },
                      { name: "state", title: "State now", cell: (row) => <Chip state={row.state} /> },
                      { name: "owner", title: "Owner now", cell: (row) => <Owner owner={row.owner} /> },
                      { name: "time", title: "Time", align: "end", cell: (row) => <Time row={row} /> },
                      { name: "lag", title: "Lag", align: "end", cell: (row) => lagText(row.lag) },
                      { name: "progress", title: "Progress", cell: (row) => <Progress row={row} /> },
                    ]}
                  />
                </>
              )}
            </Fragment>
          );
        }}
      </LiveContent>
    </Box>
  );
}
