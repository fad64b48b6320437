/** The supervisor of a source: its state, its jobs, its charts, its spec, and the actions on it. */

import { Flex, Grid, Stack, Text } from "@chakra-ui/react";

import { AuditButton } from "./audit";
import { useLive } from "./live";
import { EmptyState, LiveContent } from "./problems";
import { RowOrigin } from "./row_origin";
import { SpecVersions } from "./spec_versions";
import { stateOf } from "./states";
import { VerbButtons } from "./supervisor_actions";
import { OverTime, TaskCount } from "./supervisor_charts";
import { displayStateOf, SUPERVISOR_STATES, warningsOf } from "./supervisor_states";
import { Errors, LagOfShards, lagOf, ParseErrors, SupervisedJobs } from "./supervisor_tables";
import { countText, rateText, roughText } from "./text";
import { dagPath, sourceApi } from "./urls";
import { Warning } from "./warning";
import { RelativeTime, Chip, FactList, Statistic, Section, PageLink } from "./widgets";
import type { ConnectionRow, SpecFacts, SupervisorWithVerbs } from "./schema";
import type { Content, Place, Change } from "./types";

/** The page. */
export function SupervisorPage({
  place,
  connection,
  parameters,
  change,
  search,
}: {
  place: Place;
  connection: ConnectionRow | null;
  parameters: URLSearchParams;
  change: Change;
  search: string;
}) {
  const live = useLive(sourceApi(place.connection, place.source, "supervisor"));
  const spec = useLive(sourceApi(place.connection, place.source, "supervisor/history"), { every: 10 });
  const ruling = spec.response?.versions.find((each: SpecFacts) => each.spec !== null)?.spec;
  const verbs = { place, connection, spec: ruling ?? null, refresh: live.refresh };
  if (live.response === null && live.problem?.kind === "missing") {
    return (
      <EmptyState
        title="This source has no supervisor"
        text="A supervisor keeps the jobs of a source running, as its spec describes. Write a DAG with supervised_ingestion, or submit a spec here."
        icon="plug"
        kind="empty"
      >
        <VerbButtons {...verbs} status={null} />
      </EmptyState>
    );
  }
  return (
    <LiveContent live={live} what="supervisor" connection={place.connection} rows={8}>
      {(status) => (
        <Stack key="supervisor" gap={6} pb={6} data-supervisor={displayStateOf(status)}>
          <StateSummary
            status={status}
            verbs={
              <>
                <AuditButton place={place} connection={connection} />
                <VerbButtons {...verbs} status={status} />
              </>
            }
          />
          <SupervisedJobs status={status} place={place} />
          <OverTime status={status} parameters={parameters} change={change} />
          <TaskCount status={status} parameters={parameters} />
          <LagOfShards status={status} search={search} />
          <Errors errors={status.errors} search={search} />
          <ParseErrors place={place} />
          <RowOrigin place={place} parameters={parameters} change={change} search={search} />
          <SpecVersions place={place} parameters={parameters} change={change} />
        </Stack>
      )}
    </LiveContent>
  );
}

/** The state and the main statistics. */
function StateSummary({ status, verbs }: { status: SupervisorWithVerbs; verbs: Content }) {
  const state = displayStateOf(status);
  const running = status.jobs.filter((job) => job.state === "RUNNING" || job.state === "ENDING").length;
  const rates = status.stats.rates["5m"] ?? {};
  const totals = status.stats.totals;
  const bad = (totals.processed_with_error ?? 0) + (totals.unparseable ?? 0);
  return (
    <Section title="State" aside={verbs}>
      <Flex gap={3} align="center" wrap="wrap" mb={3}>
        <Chip state={state} states={SUPERVISOR_STATES} size="lg" />
        <Text fontSize="sm" flex="1 1 260px">
          {stateOf(state, SUPERVISOR_STATES).meaning}
        </Text>
      </Flex>
      {/* The alarm above the tabs already shows why it is unhealthy. */}
      <Stack gap={1} mb={3}>
        {warningsOf(status).map(({ text, topic }) => (
          <Warning key={text} level="warning" topic={topic}>
            {text}
          </Warning>
        ))}
      </Stack>
      <Grid as="dl" templateColumns="repeat(auto-fill, minmax(120px, 1fr))" gap={3} mb={4}>
        <Statistic name="Jobs" note={status.task_count.wanted ? `of ${countText(status.task_count.wanted)}` : null}>
          {countText(running)}
        </Statistic>
        <Statistic name="Longest lag">{lagOf(status.lag.oldest_ms)}</Statistic>
        <Statistic name="Records, 5 min">{`${roughText(Math.round(rates.processed ?? 0))}/s`}</Statistic>
        <Statistic name="Bytes, 5 min">{rateText(rates.processed_bytes ?? 0)}</Statistic>
        <Statistic name="Delivered records">{roughText(totals.processed ?? 0)}</Statistic>
        <Statistic name="Bad records">{roughText(bad)}</Statistic>
        <Statistic name="Dropped records">{roughText(totals.thrown_away ?? 0)}</Statistic>
        <Statistic name="Open partitions">{countText(status.partitions.open)}</Statistic>
      </Grid>
      <FactList
        facts={[
          [
            "DAG",
            status.dag_id ? (
              <PageLink to={dagPath(status.dag_id)}>{status.dag_id}</PageLink>
            ) : (
              "no DAG has supervised it yet"
            ),
          ],
          [
            "Spec",
            <>
              {`version ${status.spec_version}`}
              {status.spec_by && ` by ${status.spec_by}`}
              {", "}
              <RelativeTime instant={status.spec_at} />
            </>,
          ],
          status.at_least_once.length > 0 && [
            "Delivery",
            `at least once to ${status.at_least_once.join(", ")}: a batch may arrive there more than once`,
          ],
          status.started_at !== null && ["Supervised since", <RelativeTime instant={status.started_at} />],
          status.polled_at !== null && ["Last check", <RelativeTime instant={status.polled_at} />],
          status.terminated !== null && [
            "Terminated",
            <>
              <RelativeTime instant={status.terminated.at} />
              {status.terminated.reason && `: ${status.terminated.reason}`}
            </>,
          ],
        ]}
      />
    </Section>
  );
}
