import { Box, Text } from "@chakra-ui/react";

import type { JobStatus, SupervisorWithVerbs } from "../api/schema";
import { PageLink } from "../components/PageLink";
import { countText, rateText, roughText } from "../format/text";
import { lagOf } from "../supervisor/records";
import { displayStateOf } from "../states";
import { SmallTable } from "../table/SmallTable";
import { numberColumn } from "../table/numberColumn";
import { dagPath, pathOf } from "../urls";
import { StateCell } from "./StateCell";
import type { OverviewChoices } from "./choices";

const number = numberColumn<SupervisorWithVerbs>;

export function List({
  connection,
  statuses,
  choices,
}: {
  connection: string;
  statuses: SupervisorWithVerbs[];
  choices: OverviewChoices;
}) {
  // They are sorted by urgency: a state is the worse, the earlier the first supervisor in it.
  const states = [...new Set(statuses.map(displayStateOf))];
  return (
    <SmallTable
      label={`Supervisors of ${connection}`}
      rows={statuses}
      keyOf={(status) => status.source}
      narrowBelow={860}
      sorting={choices.sorting}
      onSort={choices.onSort}
      columns={[
        {
          name: "source",
          title: "Source",
          value: (status) => status.source,
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
          value: (status) => -states.indexOf(displayStateOf(status)),
          maxW: "440px",
          cell: (status) => <StateCell status={status} />,
        },
        {
          name: "jobs",
          title: "Jobs",
          align: "end",
          value: runningJobs,
          cell: (status) => {
            const running = runningJobs(status);
            return status.task_count.wanted
              ? `${running} of ${countText(status.task_count.wanted)}`
              : countText(running);
          },
        },
        number("lag", "Lag", (status) => status.lag.oldest_ms, lagOf),
        number("records", "Records, 5 min", (status) => status.stats.rates["5m"]?.processed, perSecond),
        number("bytes", "Bytes, 5 min", (status) => status.stats.rates["5m"]?.processed_bytes, bytesPerSecond),
        number("partitions", "Partitions", (status) => status.partitions.open, countText),
        number(
          "spec",
          "Spec",
          (status) => status.spec_version,
          (version) => `version ${version}`,
        ),
      ]}
    />
  );
}

function perSecond(records: number | null) {
  return `${roughText(Math.round(records ?? 0))}/s`;
}

function bytesPerSecond(rate: number | null) {
  return rateText(rate ?? 0);
}

function runningJobs(status: SupervisorWithVerbs) {
  return status.jobs.filter((job: JobStatus) => job.state === "RUNNING").length;
}
