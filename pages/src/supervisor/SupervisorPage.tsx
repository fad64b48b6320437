/** The supervisor of a source: its state, its jobs, its charts, its spec, and the actions on it. */

import { Stack } from "@chakra-ui/react";

import { useLive } from "../api/live";
import type { SpecHistory, SupervisorWithVerbs } from "../api/schema";
import { EmptyState } from "../components/EmptyState";
import { LiveContent } from "../components/LiveContent";
import { displayStateOf } from "../states";
import type { PageProps } from "../types";
import { sourceApi } from "../urls";
import { Errors } from "./Errors";
import { LagOfShards } from "./LagOfShards";
import { OverTime } from "./OverTime";
import { ParseErrors } from "./ParseErrors";
import { RowOrigin } from "./RowOrigin";
import { SpecVersions } from "./SpecVersions";
import { StateSummary } from "./StateSummary";
import { SupervisedJobs } from "./SupervisedJobs";
import { TaskCount } from "./TaskCount";
import { VerbButtons } from "./VerbButtons";

/** The page. */
export function SupervisorPage({ place, connection, parameters, change, search }: PageProps) {
  const live = useLive<SupervisorWithVerbs>(sourceApi(place.connection, place.source, "supervisor"));
  const spec = useLive<SpecHistory>(sourceApi(place.connection, place.source, "supervisor/history"), { every: 10 });
  const ruling = spec.response?.versions.find((each) => each.spec !== null)?.spec;
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
          <StateSummary status={status} verbs={<VerbButtons {...verbs} status={status} />} />
          <SupervisedJobs status={status} place={place} />
          <OverTime status={status} parameters={parameters} change={change} />
          <TaskCount status={status} parameters={parameters} />
          <LagOfShards status={status} search={search} />
          <Errors errors={status.errors} search={search} />
          <ParseErrors place={place} />
          <RowOrigin place={place} parameters={parameters} change={change} search={search} />
          <SpecVersions place={place} connection={connection} parameters={parameters} change={change} />
        </Stack>
      )}
    </LiveContent>
  );
}
