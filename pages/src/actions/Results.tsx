import { Button } from "@chakra-ui/react";

import type { ActionResult } from "../api/schema";
import { plural } from "../format/text";
import { Outcomes } from "./Outcomes";
import { Result } from "./Result";
import { OUTCOMES } from "./outcomes";

export function Results({ results, done, again }: { results: ActionResult[]; done: string; again: () => void }) {
  const good = results.filter((result) => result.outcome === "done").length;
  const rest = results.filter((result) => result.outcome !== "done");
  const stale = rest.filter((result) => result.outcome === "stale" && result.partition !== null);
  return (
    <Outcomes
      title={`${done} ${good} of ${plural(results.length, "partition")}.`}
      items={rest.map((result) => ({
        key: result.key,
        palette: OUTCOMES[result.outcome][1],
        outcome: result.outcome,
        content: <Result result={result} />,
      }))}
    >
      {stale.length > 0 && (
        <Button size="sm" variant="outline" alignSelf="flex-start" type="button" onClick={again}>
          {stale.length === 1
            ? "Try again with its current state…"
            : `Try again with the current state of these ${stale.length}…`}
        </Button>
      )}
    </Outcomes>
  );
}
