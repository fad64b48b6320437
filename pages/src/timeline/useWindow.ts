/** The timeline: which owner held which partition and when, expired leases, and takeovers. */

import { fetchLive, usePolling } from "../api/live";
import { clock } from "../api/request";
import type { Timeline } from "../api/schema";
import type { Place } from "../types";
import { sourceApi } from "../urls";
import { windowOf } from "./layout";

const LIMIT = 200;
/** The past changes little: a worker may write its history a moment later. */
const PAST_EVERY_SECONDS = 30;

/** Keep a window fresh: one that ends now moves with the time. */
export function useWindow(place: Place, parameters: URLSearchParams, isLive: boolean) {
  const [name, until, text] = ["window", "until", "search"].map((each) => parameters.get(each) ?? "");
  const key = JSON.stringify(["timeline", place.connection, place.source, name, until, text]);
  const poll = (signal: AbortSignal): Promise<Timeline> => {
    const window = windowOf(new URLSearchParams({ window: name, until }), clock.now());
    const query = new URLSearchParams({
      since: new Date(window.since).toISOString(),
      until: new Date(window.until).toISOString(),
      limit: String(LIMIT),
    });
    if (text !== "") query.set("search", text);
    return fetchLive(key, sourceApi(place.connection, place.source, `timeline?${query}`), signal);
  };
  return usePolling(key, poll, isLive ? {} : { every: PAST_EVERY_SECONDS });
}
