/** The workers of a source: their leases, their signs of life, and their Spark jobs. */

import { Badge, Box, Flex, Link, Stack, Text } from "@chakra-ui/react";
import { Fragment } from "react";

import { addressOf } from "./api";
import { useNow } from "./clock";
import { Icon } from "./icons";
import { useLive } from "./live";
import { EmptyState, LiveContent } from "./problems";
import { SmallTable } from "./small_table";
import { JOB_STATES } from "./states";
import { countText, plural } from "./text";
import { duration, secondsUntil } from "./time";
import { pathOf, sourceApi, withParameters } from "./urls";
import { RelativeTime, Chip, CopyButton, Owner, PageLink } from "./widgets";
import type { JobFacts, WorkerRow } from "./schema";
import type { Place } from "./types";

function LifeStatus({ worker }: { worker: WorkerRow }) {
  const now = useNow();
  const left = worker.registered_until === null ? null : secondsUntil(worker.registered_until, now);
  return (
    <Stack gap={0.5}>
      <Badge
        colorPalette={worker.is_live ? "green" : "orange"}
        variant="subtle"
        alignSelf="flex-start"
        data-live={worker.is_live}
      >
        {worker.is_live ? "Live" : "No sign of life"}
      </Badge>
      <Text fontSize="xs" color="fg.muted" whiteSpace="nowrap">
        {left === null
          ? "not registered"
          : left >= 0
            ? `registered for ${duration(left)} more`
            : `registration expired ${duration(left)} ago`}
      </Text>
    </Stack>
  );
}

function Job({ job }: { job: JobFacts | null }) {
  if (job === null)
    return (
      <Text as="span" color="fg.muted">
        –
      </Text>
    );
  return (
    <Stack gap={0.5} minW={0}>
      <Flex gap={2} align="center">
        <Chip state={job.state} states={JOB_STATES} />
        {job.ui_url && (
          <Link href={addressOf(job.ui_url)} target="_blank" rel="noopener noreferrer" color="blue.fg" fontSize="xs">
            {"Spark UI "}
            <Icon name="link" size={3} />
          </Link>
        )}
      </Flex>
      {job.application_id && (
        <Flex align="center" fontSize="xs" color="fg.muted" minW={0}>
          <Text truncate minW={0} title={job.application_id}>
            {job.application_id}
          </Text>
          <CopyButton text={job.application_id} label="Copy the id of the application" />
        </Flex>
      )}
      {job.stop_reason && (
        <Text fontSize="xs" color="orange.fg" overflowWrap="anywhere">
          {`stop requested: ${job.stop_reason}`}
        </Text>
      )}
    </Stack>
  );
}

/** The number of leases of a worker, and its limit if it has one. */
function leasesOf({ leases, max_leases: limit }: { leases: number; max_leases: number | null }) {
  return limit === null ? countText(leases) : `${countText(leases)} of ${countText(limit)}`;
}

/** The page. */
export function WorkersPage({ place }: { place: Place }) {
  const live = useLive(sourceApi(place.connection, place.source, "workers"));
  return (
    <Box minW={0}>
      <LiveContent live={live} what="workers" connection={place.connection}>
        {({ workers, complete }) =>
          workers.length === 0 ? (
            <EmptyState
              key="none"
              title="No job works on this source now"
              text="The next run takes the waiting partitions. If none starts, check whether the DAG is paused, the pool is full, or the cluster is down."
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
                {!complete && " There are more leases than this page reads."}
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
                    cell: (worker) => (worker.slots === null ? "–" : countText(worker.slots)),
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
