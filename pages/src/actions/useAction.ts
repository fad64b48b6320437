/** What all actions share: their buttons, their requests to the API, and their outcomes. */

import { useCallback, useState } from "react";

import type { ProblemLike } from "../types";

export const LISTED = 20;

/** Return what runs an action, whether it is running, and why it failed, as `ReasonDialog` expects them. */
export function useAction(): {
  run: (act: () => Promise<void>) => Promise<void>;
  isBusy: boolean;
  problem: ProblemLike | null;
} {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<ProblemLike | null>(null);

  const run = useCallback(async (act: () => Promise<void>) => {
    setBusy(true);
    setProblem(null);
    try {
      await act();
    } catch (error) {
      // An error that is no response of the server is about the user's input.
      const kind = (error as Partial<ProblemLike>).kind ?? "refused";
      setProblem({ kind, message: error instanceof Error ? error.message : String(error), status: null });
    } finally {
      setBusy(false);
    }
  }, []);
  return { run, isBusy, problem };
}
