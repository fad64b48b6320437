import { Box, Flex, Text } from "@chakra-ui/react";
import { Fragment } from "react";

import { useLive } from "../api/live";
import type { WorkerList, WorkerRow } from "../api/schema";
import { CopyButton } from "../components/CopyButton";
import { EmptyState } from "../components/EmptyState";
import { LiveContent } from "../components/LiveContent";
import { Owner } from "../components/Owner";
import { PageLink } from "../components/PageLink";
import { RelativeTime } from "../components/RelativeTime";
import { countText, plural } from "../format/text";
import { SmallTable } from "../table/SmallTable";
import type { PageProps } from "../types";
import { pathOf, sourceApi, withParameters } from "../urls";
import { Job } from "./Job";
import { LifeStatus } from "./LifeStatus";

/** The page. */
export function WorkersPage({ place }: PageProps) {
  const live = useLive<WorkerList>(sourceApi(place.connection, place.source, "workers"));
  return (
    <Box minW={0}>
      <LiveContent live={live} what="workers" connection={place.connection}>
        {({ workers, complete }) =>
          workers.length === 0 ? (
            <EmptyState
              key="none"
              title="No job is working on this source"
              text="The next run takes the waiting partitions. If no run starts, check whether the DAG is paused, the pool is full, or the cluster is down."
              icon="plug"
              kind="empty"
            />
          ) : (
            <Fragment key="workers">
              <Text fontSize="sm" color="fg.muted" mb={2}>
                {`${plural(workers.filter((each: WorkerRow) => each.is_live).length, "worker")} live, ${plural(
                  workers.reduce((sum: number, each: WorkerRow) => sum + each.leases, 0),
                  "lease",
                )}.`}
                {!complete && " Not all leases are shown."}
              </Text>
              <SmallTable
                label="Workers"
                rows={workers}
                keyOf={(worker) => worker.owner.name}
                columns={[
                  {
                    name: "worker",
                    title: "Worker",
                    cell: (worker) => (
                      <Flex gap={1} align="flex-start" minW={0}>
                        <Owner owner={worker.owner} withHost />
                        <CopyButton text={worker.owner.name} label={`Copy the owner ${worker.owner.name}`} />
                      </Flex>
                    ),
                  },
                  { name: "alive", title: "Status", cell: (worker) => <LifeStatus worker={worker} /> },
                  {
                    name: "leases",
                    title: "Leases",
                    align: "end",
                    cell: (worker) => (
                      <PageLink
                        to={{
                          pathname: pathOf({ ...place, page: "partitions" }),
                          search: withParameters("", { owner: worker.owner.name }),
                        }}
                        aria-label={`${leasesOf(worker)} ${worker.leases === 1 ? "lease" : "leases"}: show them`}
                      >
                        {leasesOf(worker)}
                      </PageLink>
                    ),
                  },
                  {
                    name: "slots",
                    title: "Slots",
                    align: "end",
                    cell: (worker) => countText(worker.slots),
                  },
                  { name: "started", title: "Started", cell: (worker) => <RelativeTime instant={worker.started_at} /> },
                  { name: "job", title: "Spark job", cell: (worker) => <Job job={worker.job} /> },
                ]}
              />
            </Fragment>
          )
        }
      </LiveContent>
    </Box>
  );
}

/** Return the number of leases of a worker, and its limit if it has one. */
function leasesOf({ leases, max_leases: limit }: WorkerRow) {
  return limit === null ? countText(leases) : `${countText(leases)} of ${countText(limit)}`;
}
