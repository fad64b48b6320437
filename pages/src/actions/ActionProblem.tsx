import { Alert, Button } from "@chakra-ui/react";
import { useEffect, useRef } from "react";

import { logIn } from "../api/request";
import { ManualLink } from "../components/ManualLink";
import type { ProblemLike } from "../types";

/** The reason why an action failed. */
export function ActionProblem({ problem }: { problem: ProblemLike }) {
  // Below a long form it might not be visible.
  const shown = useRef<HTMLDivElement>(null);
  useEffect(() => {
    shown.current?.scrollIntoView({ block: "nearest" });
  }, [problem]);
  const text = {
    session: "Your session has ended. Nothing was changed.",
    // Airflow refuses with this one word; the routes of this package give a reason.
    forbidden:
      problem.message === "Forbidden"
        ? "No permission: this action needs “can edit” on the connection. Nothing was changed."
        : `Refused: ${problem.message}. Nothing was changed.`,
    stale: `${problem.message}. Nothing was changed.`,
    unavailable: "The store is unavailable. The action may have been done: check the current state, then try again.",
    offline: "The API server did not respond. The action may have been done: check the current state, then try again.",
  }[problem.kind];
  const manual = {
    forbidden: { topic: "access" },
    unavailable: { topic: "store" },
    broken: { topic: "failed-request" },
  }[problem.kind];
  return (
    <Alert.Root ref={shown} status="error" size="sm" role="alert" data-problem={problem.kind}>
      <Alert.Indicator />
      <Alert.Content color="fg" overflowWrap="anywhere" minW={0}>
        {text ?? problem.message}
      </Alert.Content>
      {manual && <ManualLink {...manual} />}
      {problem.kind === "session" && (
        <Button size="xs" variant="outline" type="button" onClick={logIn}>
          Log in again
        </Button>
      )}
    </Alert.Root>
  );
}
