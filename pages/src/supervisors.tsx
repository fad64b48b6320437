/** The supervisors of a connection as a list, those first that need an operator. */

import { Box, Flex, Stack, Text } from "@chakra-ui/react";

import { EmptyState } from "./problems";
import { SmallTable } from "./small_table";
import { VerbsForAll } from "./supervisor_actions";
import { isUnhealthy, displayStateOf, supervisorsByUrgency, SUPERVISOR_STATES, warningsOf } from "./supervisor_states";
import { lagOf } from "./supervisor_tables";
import { countText, plural, rateText, roughText } from "./text";
import { dagPath, pathOf } from "./urls";
import { Chip, PageLink } from "./widgets";
import type { ConnectionRow, JobStatus, SupervisorWithVerbs } from "./schema";

export function Supervisors({
  connection,
  statuses,
  search,
  refresh,
}: {
  connection: ConnectionRow;
  statuses: SupervisorWithVerbs[];
  search: string;
  refresh: () => void;
}) {
  if (statuses.length === 0) {
    return (
      <EmptyState
        title="No supervisors yet"
        text="Run a DAG with supervised_ingestion, or submit a spec."
        icon="plug"
        kind="empty"
      >
        <VerbsForAll connection={connection} count={0} refresh={refresh} />
      </EmptyState>
    );
  }
  const found = statuses.filter((each) => each.source.toLowerCase().includes(search.toLowerCase()));
  const unhealthy = statuses.filter(isUnhealthy).length;
  return (
    <>
      <Flex justify="space-between" align="center" gap={2} mb={2} wrap="wrap">
        <Text fontSize="sm" color={unhealthy > 0 ? "red.fg" : "fg.muted"} data-unhealthy={unhealthy}>
          {unhealthy > 0
            ? `${unhealthy} of ${plural(statuses.length, "supervisor")} ${unhealthy === 1 ? "is" : "are"} unhealthy.`
            : `${plural(statuses.length, "supervisor")}, none unhealthy.`}
        </Text>
        <VerbsForAll connection={connection} count={statuses.length} refresh={refresh} />
      </Flex>
      {found.length === 0 ? (
        <EmptyState title="No supervisor matches" text={`No source name contains “${search}”.`} kind="empty" />
      ) : (
        <List connection={connection.connection_id} statuses={supervisorsByUrgency(found)} />
      )}
    </>
  );
}

function List({ connection, statuses }: { connection: string; statuses: SupervisorWithVerbs[] }) {
  return (
    <SmallTable
      label={`Supervisors of ${connection}`}
      rows={statuses}
      keyOf={(status) => status.source}
      narrowBelow={860}
      columns={[
        {
          name: "source",
          title: "Source",
          cell: (status) => (
            <Box minW={0}>
              <PageLink
                to={pathOf({ connection, source: status.source, page: "supervisor" })}
                fontWeight="semibold"
                dir="auto"
              >
                {status.source}
              </PageLink>
              {status.dag_id && (
                <Text fontSize="xs" color="fg.muted">
                  <PageLink to={dagPath(status.dag_id)} color="fg.muted" aria-label={`DAG ${status.dag_id}`}>
                    {status.dag_id}
                  </PageLink>
                </Text>
              )}
            </Box>
          ),
        },
        {
          name: "state",
          title: "State",
          maxW: "440px",
          cell: (status) => <StateCell status={status} />,
        },
        {
          name: "jobs",
          title: "Jobs",
          align: "end",
          cell: (status) => {
            const running = status.jobs.filter((job: JobStatus) => job.state === "RUNNING").length;
            return status.task_count.wanted
              ? `${running} of ${countText(status.task_count.wanted)}`
              : countText(running);
          },
        },
        { name: "lag", title: "Lag", align: "end", cell: (status) => lagOf(status.lag.oldest_ms) },
        {
          name: "records",
          title: "Records, 5 min",
          align: "end",
          cell: (status) => `${roughText(Math.round(status.stats.rates["5m"]?.processed ?? 0))}/s`,
        },
        {
          name: "bytes",
          title: "Bytes, 5 min",
          align: "end",
          cell: (status) => rateText(status.stats.rates["5m"]?.processed_bytes ?? 0),
        },
        { name: "partitions", title: "Partitions", align: "end", cell: (status) => countText(status.partitions.open) },
        { name: "spec", title: "Spec", align: "end", cell: (status) => `version ${status.spec_version}` },
      ]}
    />
  );
}

function StateCell({ status }: { status: SupervisorWithVerbs }) {
  const state = displayStateOf(status);
  const [error] = status.errors;
  const text =
    state === "DAG_PAUSED"
      ? "its DAG is paused"
      : state === "SUSPENDED"
        ? status.suspended?.reason
        : isUnhealthy(status)
          ? error && `${error.error_class}: ${error.message}`
          : warningsOf(status)[0]?.text;
  return (
    <Stack gap={0.5} minW={0}>
      <Chip state={state} states={SUPERVISOR_STATES} alignSelf="flex-start" />
      {text && (
        <Text
          fontSize="xs"
          color={isUnhealthy(status) ? "red.fg" : state === "RUNNING" ? "orange.fg" : "fg.muted"}
          overflowWrap="anywhere"
          lineClamp={2}
        >
          {text}
        </Text>
      )}
    </Stack>
  );
}
