import { Button, Flex, Text } from "@chakra-ui/react";

import type { ActionResult } from "../api/schema";
import { Chip } from "../components/Chip";
import { Shortened } from "../components/Shortened";
import { plural } from "../format/text";
import { Outcomes } from "./Outcomes";

/** What each outcome means, and its palette. */
const OUTCOMES: Record<string, [string, string]> = {
  stale: ["It has changed since you opened the dialog. It was left unchanged", "orange"],
  refused: ["Refused", "red"],
  missing: ["It no longer exists", "gray"],
};

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

function Result({ result }: { result: ActionResult }) {
  return (
    <>
      <Flex gap={2} align="center" minW={0}>
        <Shortened text={result.key} tail={28} fontWeight="medium" />
      </Flex>
      <Text>{OUTCOMES[result.outcome][0]}.</Text>
      <Text color="fg.muted">{result.detail}</Text>
      {result.partition && (
        <Flex gap={2} align="center" mt={1}>
          Current state:
          <Chip state={result.partition.state} size="xs" />
          {result.partition.owner && <Shortened text={result.partition.owner.name} />}
        </Flex>
      )}
    </>
  );
}
