/**
 * Responses that are kept fresh: requested again every two seconds while the page is visible, less often while there is a
 * problem, and never after the user has left the page.
 *
 * Airflow creates a plugin's page again at each change of its path. So the responses are kept outside of it, and the next
 * page shows them at once.
 */

import { keepPreviousData, QueryClient, useQuery } from "@tanstack/react-query";
import { useCallback, useSyncExternalStore } from "react";

import { requestTogether } from "./together";
import type { Refreshed } from "../types";
import { EVERY_SECONDS, millisecondsToNext } from "./pace";
import { Problem, request } from "./request";

export const queries = new QueryClient({ defaultOptions: { queries: { retry: false, networkMode: "always" } } });
// There is no provider that would do it: without it, a page that becomes visible again would not be refreshed.
queries.mount();

/** What is known after a request: the response stays while later requests fail. */
type Outcome<Body> = { response: Body | null; problem: Problem | null; failures: number };

/** Whether the user has paused all updates. */
const pause = {
  isPaused: false,
  listeners: new Set<() => void>(),
  toggle() {
    pause.isPaused = !pause.isPaused;
    pause.listeners.forEach((listener) => listener());
    if (!pause.isPaused) void queries.refetchQueries({ type: "active" });
  },
  subscribe(listener: () => void) {
    pause.listeners.add(listener);
    return () => pause.listeners.delete(listener);
  },
};

/** Return whether updates are paused, and the function that toggles it. */
export function usePause(): [boolean, () => void] {
  return [useSyncExternalStore(pause.subscribe, () => pause.isPaused), pause.toggle];
}

function problemOf(error: unknown) {
  if (error instanceof Problem) return error;
  console.error(error);
  return new Problem("broken", error instanceof Error ? error.message : String(error));
}

async function refresh(key: string) {
  const wasRunning = queries.isFetching({ queryKey: [key] }) > 0;
  await queries.refetchQueries({ queryKey: [key] }, { cancelRefetch: false });
  // What was running may have been answered before the change that the user wants to see.
  if (wasRunning) await queries.refetchQueries({ queryKey: [key] }, { cancelRefetch: false });
}

/** What a poll knows and reports: its latest response, and the function that shows a part of the next one at once. */
export type Progress<Body> = { before: Body | null; show: (response: Body) => void };

/**
 * Return the result of something that is done repeatedly while the page is visible.
 *
 * @param key identifies it: components with the same key share it
 * @param poll what is done; throws a `Problem`
 * @param [options] with `isList` the items of a response are compared by `poll`, and the response of the key before is
 *     returned as `isPrevious` until there is another one
 */
export function usePolling<Body>(
  key: string,
  poll: (signal: AbortSignal, progress: Progress<Body>) => Promise<Body>,
  { every = EVERY_SECONDS, isOn = true, isList = false }: { every?: number; isOn?: boolean; isList?: boolean } = {},
): Refreshed<Body> & { isPrevious: boolean } {
  const [isPaused] = usePause();
  const queryKey = [key];
  const waitAfter = (outcome: Outcome<Body>, at: number) =>
    millisecondsToNext({ problem: outcome.problem?.kind ?? null, failures: outcome.failures }, at, every);
  const { data, dataUpdatedAt, isFetching, isPlaceholderData } = useQuery<Outcome<Body>>(
    {
      queryKey,
      enabled: isOn,
      structuralSharing: !isList,
      placeholderData: isList ? keepPreviousData : undefined,
      queryFn: async ({ signal }) => {
        const show = (response: Body) =>
          queries.setQueryData<Outcome<Body>>(queryKey, { response, problem: null, failures: 0 });
        try {
          const before = queries.getQueryData<Outcome<Body>>(queryKey)?.response ?? null;
          return { response: await poll(signal, { before, show }), problem: null, failures: 0 };
        } catch (error) {
          if (signal.aborted) throw error;
          const before = queries.getQueryData<Outcome<Body>>(queryKey);
          return {
            response: before?.response ?? null,
            problem: problemOf(error),
            failures: (before?.failures ?? 0) + 1,
          };
        }
      },
      refetchInterval: ({ state }) => {
        const wait = state.data === undefined ? null : waitAfter(state.data, state.dataUpdatedAt);
        return !isPaused && wait !== null && wait;
      },
      refetchOnWindowFocus: !isPaused,
    },
    queries,
  );
  const wait = data === undefined ? null : waitAfter(data, dataUpdatedAt);
  return {
    response: data?.response ?? null,
    isPrevious: isPlaceholderData,
    problem: isPlaceholderData ? null : (data?.problem ?? null),
    nextAt: isFetching || isPaused || wait === null ? null : dataUpdatedAt + wait,
    refresh: useCallback(() => void refresh(key), [key]),
  };
}

/**
 * Read a path that a page shows. The first time it is a request of its own, and then one together with others.
 *
 * @param path below `/coordination/`
 */
export function fetchLive<Body>(key: string, path: string, signal: AbortSignal): Promise<Body> {
  const isFirst = queries.getQueryData([key]) === undefined;
  return isFirst ? request(path, { signal }) : requestTogether(path, { signal });
}

/**
 * Return the response to a request, kept fresh.
 *
 * @param path below `/coordination/`; null for no request
 */
export function useLive<Body>(path: string | null, { every }: { every?: number } = {}): Refreshed<Body> {
  const key = path ?? "";
  return usePolling(key, (signal) => fetchLive<Body>(key, key, signal), { every, isOn: path !== null });
}
