import { Badge, Stack, Text } from "@chakra-ui/react";

import type { WorkerRow } from "../api/schema";
import { useNow } from "../format/clock";
import { duration, secondsUntil } from "../format/time";

export function LifeStatus({ worker }: { worker: WorkerRow }) {
  const now = useNow();
  const left = worker.registered_until === null ? null : secondsUntil(worker.registered_until, now);
  return (
    <Stack gap={0.5}>
      <Badge
        colorPalette={worker.is_live ? "green" : "orange"}
        variant="subtle"
        alignSelf="flex-start"
        data-live={worker.is_live}
      >
        {worker.is_live ? "Live" : "Not responding"}
      </Badge>
      <Text fontSize="xs" color="fg.muted" whiteSpace="nowrap">
        {left === null
          ? "not registered"
          : left >= 0
            ? `registered for ${duration(left)} more`
            : `registration expired ${duration(left)} ago`}
      </Text>
    </Stack>
  );
}
