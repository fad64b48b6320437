import { Alert } from "@chakra-ui/react";

import type { ProblemLike } from "../types";
import { Icon } from "./Icon";
import { ManualLink } from "./ManualLink";
import { ProblemButton } from "./ProblemButton";
import { RetryCountdown } from "./RetryCountdown";
import { descriptionOf } from "./problemText";

/** A line below the content from before a problem. It is always visible, and moves nothing of the content. */
export function StaleNote({
  problem,
  connection,
  nextAt = null,
  refresh,
}: {
  problem: ProblemLike;
  connection?: string;
  nextAt?: number | null;
  refresh?: () => void;
}) {
  const words = descriptionOf(problem, connection);
  return (
    <Alert.Root
      status={words.isRetried ? "warning" : "error"}
      size="sm"
      role="alert"
      mt={3}
      position="sticky"
      bottom={0}
      zIndex={3}
      flexShrink={0}
      data-problem={problem.kind}
      flexWrap="wrap"
    >
      <Alert.Indicator>
        <Icon name={words.icon} />
      </Alert.Indicator>
      <Alert.Content minW={0} flex={1} display="block" color="fg">
        <Alert.Title as="span" fontWeight="semibold">
          {`${words.title}. `}
        </Alert.Title>
        <Alert.Description as="span">
          {"The page shows the last known state. "}
          {words.isRetried && <RetryCountdown nextAt={nextAt} />}
        </Alert.Description>
      </Alert.Content>
      {words.topic && <ManualLink topic={words.topic} />}
      <ProblemButton problem={problem} refresh={refresh} size="xs" />
    </Alert.Root>
  );
}
