/** The tables of a supervisor: its jobs, the lag of each partition, and its errors. */

import { Badge, Box, Code, Flex, Span, Stack, Strong, Text } from "@chakra-ui/react";

import { useLive } from "./live";
import { LiveContent } from "./problems";
import { SmallTable, PHONE_WIDTH } from "./small_table";
import { byLag, SUPERVISED_JOB_STATES } from "./supervisor_states";
import { countText, plural } from "./text";
import { duration, lagText } from "./time";
import { pathOf, sourceApi, withParameters } from "./urls";
import { RelativeTime, Chip, CopyButton, Instant, Section, Shortened, PageLink } from "./widgets";
import type { ErrorEvent, SupervisorWithVerbs } from "./schema";
import type { Place } from "./types";

export function lagOf(milliseconds: number | null) {
  return milliseconds === null ? "unknown" : lagText(milliseconds / 1000);
}

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
                      title="It hands over to a job of the new spec"
                    >
                      outdated
                    </Badge>
                  )}
                </Flex>
              ),
            },
            { name: "partitions", title: "Partitions", align: "end", cell: (job) => countText(job.partitions) },
            {
              name: "slots",
              title: "Slots",
              align: "end",
              cell: (job) => (job.slots === null ? "–" : countText(job.slots)),
            },
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

/** The latest errors, the latest first. */
export function Errors({ errors, search }: { errors: ErrorEvent[]; search: string }) {
  return (
    <Section title="Errors">
      {errors.length === 0 ? (
        <Text fontSize="sm" color="fg.muted">
          No errors.
        </Text>
      ) : (
        <SmallTable
          label="Errors"
          rows={errors}
          keyOf={(error) => `${error.at} ${error.error_class} ${error.owner} ${error.partition}`}
          columns={[
            { name: "at", title: "At", width: "210px", cell: (error) => <Instant instant={error.at} /> },
            {
              name: "error",
              title: "Error",
              maxW: "none",
              cell: (error) => (
                <Box minW={0}>
                  <Flex gap={2} align="center" wrap="wrap">
                    <Strong>{error.error_class}</Strong>
                    {error.is_stream_error && (
                      <Badge size="xs" colorPalette="orange" variant="subtle">
                        source error
                      </Badge>
                    )}
                  </Flex>
                  <Text color="fg.muted" overflowWrap="anywhere" whiteSpace="pre-wrap">
                    {error.message}
                  </Text>
                </Box>
              ),
            },
            {
              name: "where",
              title: "Where",
              maxW: "360px",
              cell: (error) => (
                <Stack gap={0.5} minW={0}>
                  {error.partition && (
                    <PageLink
                      to={{ search: withParameters(search, { partition: error.partition }) }}
                      minW={0}
                      aria-label={error.partition}
                    >
                      <Shortened text={error.partition} tail={20} />
                    </PageLink>
                  )}
                  {error.owner && <Shortened text={error.owner} tail={20} color="fg.muted" fontSize="xs" />}
                  {!error.partition && !error.owner && <Text color="fg.muted">supervisor</Text>}
                </Stack>
              ),
            },
          ]}
        />
      )}
    </Section>
  );
}

/** The bad records that the jobs reported last. */
export function ParseErrors({ place }: { place: Place }) {
  const live = useLive(sourceApi(place.connection, place.source, "supervisor/parse-errors"), { every: 10 });
  return (
    <Section title="Bad records">
      <LiveContent live={live} what="bad records" connection={place.connection} isPart rows={2}>
        {({ count, dead_letter_path: path, errors }) => [
          <Text key="count" fontSize="sm" color="fg.muted" mb={errors.length === 0 ? 0 : 2} overflowWrap="anywhere">
            {count === 0 && errors.length === 0 ? "None." : `${plural(count, "bad record")}. `}
            {count > 0 && path !== null && `Dead letters: ${path}.`}
          </Text>,
          errors.length > 0 && (
            <SmallTable
              key="errors"
              label="Bad records"
              rows={errors.map((error: any, index: number) => ({ ...error, index }))}
              keyOf={(error) => String(error.index)}
              columns={[
                { name: "at", title: "At", width: "210px", cell: (error) => <Instant instant={error.at} /> },
                { name: "stage", title: "Stage", width: "100px", cell: (error) => error.stage ?? "–" },
                {
                  name: "error",
                  title: "Error",
                  maxW: "none",
                  cell: (error) => <Text overflowWrap="anywhere">{error.error}</Text>,
                },
                {
                  name: "record",
                  title: "Record",
                  maxW: "none",
                  cell: (error) => (
                    <Code size="sm" variant="surface" overflowWrap="anywhere">
                      {recordOf(error)}
                    </Code>
                  ),
                },
              ]}
            />
          ),
        ]}
      </LiveContent>
    </Section>
  );
}

/** Return the fields that identify the record of an error. */
function recordOf({
  at: _at,
  stage: _stage,
  error: _error,
  owner: _owner,
  index: _index,
  ...record
}: Record<string, any>) {
  return Object.entries(record)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}=${value}`)
    .join(" ");
}
