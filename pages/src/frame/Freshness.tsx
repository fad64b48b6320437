import { Flex, IconButton, Status } from "@chakra-ui/react";

import { usePause } from "../api/live";
import { Icon } from "../components/Icon";
import { useNow } from "../format/clock";
import { duration } from "../format/time";
import type { Live } from "../types";

/** The freshness of a page, and the button that pauses and resumes its updates. */
export function Freshness({ live }: { live: Live<unknown> }) {
  const [isPaused, toggle] = usePause();
  useNow(); // it counts down
  const problem = live?.problem ?? null;
  const left = live?.nextAt ? Math.max(1, Math.ceil((live.nextAt - Date.now()) / 1000)) : null;
  const [text, palette] = isPaused
    ? ["Paused", "gray"]
    : problem === null
      ? ["Live", "green"]
      : problem.kind === "session"
        ? ["Stopped", "red"]
        : [left === null ? "Retrying" : `Retrying in ${duration(left)}`, "orange"];
  return (
    <Flex align="center" gap={1} flexShrink={0} fontSize="sm" color="fg.muted">
      <Status.Root
        colorPalette={palette}
        size="sm"
        data-freshness={isPaused ? "paused" : problem === null ? "live" : "trying"}
      >
        <Status.Indicator />
        {text}
      </Status.Root>
      <IconButton
        size="xs"
        variant="ghost"
        aria-label={isPaused ? "Resume updates" : "Pause updates"}
        title={isPaused ? "Resume updates" : "Pause updates"}
        onClick={toggle}
      >
        <Icon name={isPaused ? "play" : "pause"} size={3.5} />
      </IconButton>
    </Flex>
  );
}
