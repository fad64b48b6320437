import { Badge, Flex, Stack, Text } from "@chakra-ui/react";

import type { SupervisorWithVerbs } from "../api/schema";
import { Chip } from "../components/Chip";
import { CopyButton } from "../components/CopyButton";
import { PageLink } from "../components/PageLink";
import { RelativeTime } from "../components/RelativeTime";
import { Section } from "../components/Section";
import { Shortened } from "../components/Shortened";
import { countText } from "../format/text";
import { duration } from "../format/time";
import { SUPERVISED_JOB_STATES } from "../states";
import { SmallTable } from "../table/SmallTable";
import type { Place } from "../types";
import { pathOf, withParameters } from "../urls";
import { lagOf } from "./records";

/** The jobs that have not ended, those with problems first. */
export function SupervisedJobs({ status, place }: { status: SupervisorWithVerbs; place: Place }) {
  const order = Object.keys(SUPERVISED_JOB_STATES);
  const jobs = [...status.jobs].sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
  return (
    <Section title="Jobs">
      {jobs.length === 0 ? (
        <Text fontSize="sm" color="fg.muted">
          No job is running.
        </Text>
      ) : (
        <SmallTable
          label="Jobs of the supervisor"
          rows={jobs}
          keyOf={(job) => job.owner}
          columns={[
            {
              name: "job",
              title: "Job",
              cell: (job) => (
                <Flex gap={1} align="center" minW={0}>
                  <PageLink
                    to={{
                      pathname: pathOf({ ...place, page: "partitions" }),
                      search: withParameters("", { owner: job.owner }),
                    }}
                    minW={0}
                    aria-label={`Partitions of ${job.owner}`}
                  >
                    <Shortened text={job.owner} tail={20} />
                  </PageLink>
                  <CopyButton text={job.owner} label={`Copy the owner ${job.owner}`} />
                </Flex>
              ),
            },
            {
              name: "state",
              title: "State",
              cell: (job) => (
                <Stack gap={0.5}>
                  <Chip state={job.state} states={SUPERVISED_JOB_STATES} alignSelf="flex-start" />
                  {job.stop_reason && (
                    <Text fontSize="xs" color="fg.muted" overflowWrap="anywhere">
                      {job.stop_reason}
                    </Text>
                  )}
                </Stack>
              ),
            },
            {
              name: "spec",
              title: "Spec",
              cell: (job) => (
                <Flex gap={1.5} align="center">
                  {job.spec_version === null ? "–" : `version ${job.spec_version}`}
                  {job.is_outdated && (
                    <Badge
                      size="xs"
                      colorPalette="orange"
                      variant="subtle"
                      title="It is handing over to a job with the new spec"
                    >
                      outdated
                    </Badge>
                  )}
                </Flex>
              ),
            },
            { name: "partitions", title: "Partitions", align: "end", cell: (job) => countText(job.partitions) },
            { name: "slots", title: "Slots", align: "end", cell: (job) => countText(job.slots) },
            { name: "lag", title: "Lag", align: "end", cell: (job) => lagOf(job.lag_ms) },
            {
              name: "since",
              title: "Started",
              cell: (job) =>
                job.started_at === null ? (
                  <Text color="fg.muted">
                    {"planned "}
                    <RelativeTime instant={job.planned_at} />
                  </Text>
                ) : (
                  <RelativeTime instant={job.started_at} />
                ),
            },
            {
              name: "remaining",
              title: "Hands over in",
              align: "end",
              cell: (job) => (job.remaining_seconds === null ? "–" : duration(job.remaining_seconds)),
            },
            {
              name: "application",
              title: "Application",
              maxW: "360px",
              cell: (job) => (job.application_id === null ? "–" : <Shortened text={job.application_id} tail={10} />),
            },
            {
              name: "log",
              title: "Log",
              maxW: "360px",
              cell: (job) => (job.log === null ? "–" : <Shortened text={job.log} tail={20} />),
            },
          ]}
        />
      )}
    </Section>
  );
}
