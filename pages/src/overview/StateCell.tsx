import { Stack, Text } from "@chakra-ui/react";

import type { SupervisorWithVerbs } from "../api/schema";
import { Chip } from "../components/Chip";
import { displayStateOf, isUnhealthy, SUPERVISOR_STATES, warningsOf } from "../states";

export function StateCell({ status }: { status: SupervisorWithVerbs }) {
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
