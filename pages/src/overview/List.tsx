import { Box, Text } from "@chakra-ui/react";

import type { JobStatus, SupervisorWithVerbs } from "../api/schema";
import { PageLink } from "../components/PageLink";
import { countText, rateText, roughText } from "../format/text";
import { lagOf } from "../supervisor/records";
import { SmallTable } from "../table/SmallTable";
import { dagPath, pathOf } from "../urls";
import { StateCell } from "./StateCell";

export function List({ connection, statuses }: { connection: string; statuses: SupervisorWithVerbs[] }) {
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
