import { Flex, Grid, Stack, Text } from "@chakra-ui/react";

import type { SupervisorWithVerbs } from "../api/schema";
import { Chip } from "../components/Chip";
import { FactList } from "../components/FactList";
import { PageLink } from "../components/PageLink";
import { RelativeTime } from "../components/RelativeTime";
import { Section } from "../components/Section";
import { Statistic } from "../components/Statistic";
import { Warning } from "../components/Warning";
import { countText, rateText, roughText } from "../format/text";
import { stateOf, displayStateOf, SUPERVISOR_STATES, warningsOf } from "../states";
import type { Content } from "../types";
import { dagPath } from "../urls";
import { lagOf } from "./records";

/** The state and the main statistics. */
export function StateSummary({ status, verbs }: { status: SupervisorWithVerbs; verbs: Content }) {
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
