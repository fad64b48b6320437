import { Box, Text } from "@chakra-ui/react";

import { useNow } from "../format/clock";
import { duration, secondsUntil } from "../format/time";
import type { AcknowledgmentSet } from "../types";

export function TimeLeft({ set }: { set: AcknowledgmentSet }) {
  const now = useNow();
  const left = secondsUntil(set.expires_at, now);
  const isSoon = left < Math.max(60, set.timeout_seconds * 0.1);
  return (
    <Box>
      <Text color={isSoon ? "orange.fg" : undefined} fontWeight={isSoon ? "semibold" : undefined} whiteSpace="nowrap">
        {left > 0 ? `${duration(left)} left` : `${duration(left)} overdue`}
      </Text>
      <Box h="4px" w="90px" bg="bg.emphasized" borderRadius="full" mt={1} overflow="hidden" aria-hidden>
        <Box
          h="full"
          bg={isSoon ? "orange.solid" : "purple.solid"}
          style={{ width: `${Math.min(100, Math.max(0, (left / set.timeout_seconds) * 100))}%` }}
        />
      </Box>
    </Box>
  );
}
