/** The supervisors of a connection as a list, those first that need an operator. */

import { Flex, Text } from "@chakra-ui/react";

import type { ConnectionRow, SupervisorWithVerbs } from "../api/schema";
import { EmptyState } from "../components/EmptyState";
import { plural } from "../format/text";
import { VerbsForAll } from "../supervisor/VerbsForAll";
import { isUnhealthy, supervisorsByUrgency } from "../states";
import { List } from "./List";
import type { OverviewChoices } from "./choices";

export function Supervisors({
  connection,
  statuses,
  search,
  choices,
  refresh,
}: {
  connection: ConnectionRow;
  statuses: SupervisorWithVerbs[];
  search: string;
  choices: OverviewChoices;
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
        <List connection={connection.connection_id} statuses={supervisorsByUrgency(found)} choices={choices} />
      )}
    </>
  );
}
