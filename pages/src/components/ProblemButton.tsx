import { Button, type ButtonProps } from "@chakra-ui/react";

import { logIn } from "../api/request";
import type { ProblemLike } from "../types";

/** The button that may end a problem: it leads to the login, or sends the request again. */
export function ProblemButton({
  problem,
  refresh,
  size,
}: {
  problem: ProblemLike;
  refresh?: () => void;
  size: ButtonProps["size"];
}) {
  if (problem.kind === "session")
    return (
      <Button size={size} onClick={logIn}>
        Log in again
      </Button>
    );
  if (refresh === undefined) return null;
  return (
    <Button size={size} variant="outline" onClick={refresh}>
      Retry now
    </Button>
  );
}
