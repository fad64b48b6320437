import { Text } from "@chakra-ui/react";

import { useNow } from "../format/clock";
import { duration, secondsUntil } from "../format/time";
import type { Row } from "../types";

/** The time of a partition: how long its lease lasts, or how long it has waited. */
export function Time({ row }: { row: Row }) {
  const now = useNow();
  const [sign, text, palette] = timeOf(row, now);
  return (
    <Text as="span" truncate color={palette ? `${palette}.fg` : undefined} title={`${text} ${sign}`}>
      {text}
    </Text>
  );
}

function timeOf(row: Row, now: number) {
  const since = -secondsUntil(row.priority, now);
  switch (row.state) {
    case "held":
    case "awaiting":
    case "expired": {
      const left = secondsUntil(row.leased_until, now);
      return left >= 0
        ? ["until the lease expires", `${duration(left)} left`]
        : ["since the lease expired", `expired ${duration(left, { short: left <= -60 })} ago`, "orange"];
    }
    case "waiting":
      return ["since it became available", `waiting ${duration(since, { short: since >= 600 })}`];
    case "delayed":
      return ["until it becomes available", `in ${duration(since)}`];
    case "resting":
      return ["until it reopens", `in ${duration(secondsUntil(row.reopen_at, now))}`];
    case "due":
      return ["since it reopened", `due ${duration(since)}`];
    case "completed":
      return ["since it was completed", `${duration(since, { short: true })} ago`];
    default:
      return ["", "–"];
  }
}
