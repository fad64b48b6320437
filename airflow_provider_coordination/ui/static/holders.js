/** Since when present owners hold their partitions: the history knows, and is asked for it now and then. */

import { clock } from "./api.js";
import { heldSince } from "./holdings.js";
import { useMemo } from "./host.js";
import { useLive } from "./live.js";
import { sourceApi } from "./places.js";

const DAY_SECONDS = 86400;
const EVERY_SECONDS = 20;
const MOST = 2000;

/** Return the question for what happened since a day ago, the same for a whole hour. */
function question(place) {
  const hour = Math.floor(clock.now() / 3600000) * 3600;
  return sourceApi(
    place.connection,
    place.source,
    `timeline?${new URLSearchParams({ since: new Date((hour - DAY_SECONDS) * 1000).toISOString(), limit: MOST })}`,
  );
}

/** Follow who holds the partitions of a source since when; nothing is asked while nobody holds any. */
export function useHeldSince(place, isAnyHeld) {
  const { answer } = useLive(isAnyHeld ? question(place) : null, { every: EVERY_SECONDS });
  return useMemo(() => heldSince(answer?.partitions ?? []), [answer]);
}
