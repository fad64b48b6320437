import { Text } from "@chakra-ui/react";

import { countText, plural } from "../format/text";
import { STATES } from "../states";

/** The items that are read before the changes of a stream, by state. Shards wait until all of them are delivered. */
export function History({ states }: { states: Record<string, number> }) {
  const total = Object.values(states).reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  const done = states.completed ?? 0;
  const rest = Object.entries(STATES)
    .filter(([state]) => state !== "completed" && state in states)
    .map(([state, { label }]) => `${countText(states[state])} ${label.toLowerCase()}`);
  return (
    <Text fontSize="sm" color="fg.muted" data-history={done === total ? "delivered" : "waiting"}>
      {done === total
        ? `History: delivered, ${plural(total, "partition")}.`
        : `History: ${countText(done)} of ${plural(total, "partition")} delivered, ${rest.join(", ")}. The shards wait until the history is delivered.`}
    </Text>
  );
}
