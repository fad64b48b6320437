import { Text } from "@chakra-ui/react";

import type { ProblemLike } from "../types";
import { EmptyState } from "./EmptyState";
import { ManualLink } from "./ManualLink";
import { ProblemButton } from "./ProblemButton";
import { RetryCountdown } from "./RetryCountdown";
import { descriptionOf } from "./problemText";

/** A page, or a part of one, that cannot be shown because of a problem. */
export function ProblemPage({
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
    <EmptyState title={words.title} text={words.text} icon={words.icon} role="alert" kind={problem.kind}>
      {words.isRetried && (
        <Text fontSize="sm" color="fg.muted" aria-live="off">
          <RetryCountdown nextAt={nextAt} />
        </Text>
      )}
      {words.topic && <ManualLink topic={words.topic} />}
      <ProblemButton problem={problem} refresh={refresh} size="sm" />
    </EmptyState>
  );
}
