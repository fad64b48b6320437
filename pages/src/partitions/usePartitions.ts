/** The list of a source's partitions: loaded page by page while scrolling, and kept fresh where it is visible. */

import { useCallback, useMemo, useRef, useState } from "react";

import { fetchLive, usePolling } from "../api/live";
import type { ListPage, Place } from "../types";
import { sourceApi } from "../urls";
import { heldBack, nextStart, noPages, pagesInSight, rowsOf, withPage } from "./listPages";
import type { PartitionPage } from "../api/schema";

/** The first page fills any screen. It is the one that users wait for, and that is refreshed while nobody scrolls. */
const FIRST_PAGE = 150;
const PAGE = 500;
const NEAR = 80;
const REMEMBERED = 8;
/** The latest state of lists: Airflow creates the page again when the user returns to it. */
const lists = new Map<string, ListPage[]>();

/**
 * Load a list of partitions page by page, and keep its visible part fresh.
 *
 * Until the first page of a new query has arrived, the rows are those of the query before. A table that disappeared would
 * lose the focus of a user who sorts or filters.
 */
export function usePartitions(place: Place, filters: string) {
  const name = sourceApi(place.connection, place.source, `partitions?${filters}`);
  const list = useRef({ name: "", pages: noPages(), previous: noPages(), sight: { first: 0, end: 0 }, still: false });
  if (list.current.name !== name) {
    const { pages, previous, still } = list.current;
    list.current = {
      name,
      pages: lists.get(name) ?? noPages(),
      previous: pages.length > 0 ? pages : previous,
      sight: { first: 0, end: 0 },
      still,
    };
  }
  const [, redraw] = useState(0);
  const poll = useCallback(
    async (signal: AbortSignal) => {
      const mine = list.current;

      const load = async (index: number, after: string | null) => {
        const query = new URLSearchParams(filters);
        query.set("limit", String(index === 0 ? FIRST_PAGE : PAGE));
        if (after !== null) query.set("after", after);
        const response = await fetchLive<PartitionPage>(
          name,
          sourceApi(place.connection, place.source, `partitions?${query}`),
          signal,
        );
        if (list.current !== mine) return;
        mine.previous = noPages();
        mine.pages = withPage(mine.pages, index, response, { after, still: mine.still });
        lists.delete(name);
        lists.set(name, mine.pages);
        if (lists.size > REMEMBERED) lists.delete(lists.keys().next().value ?? "");
        redraw((count) => count + 1);
      };
      const visible = mine.pages.length === 0 ? [0] : pagesInSight(mine.pages, mine.sight.first, mine.sight.end);
      for (const index of visible)
        if (index < Math.max(1, mine.pages.length)) await load(index, mine.pages[index]?.after ?? null);
      // A page may be short if few partitions match. Then the next one is requested too.
      for (let more = 0; more < 4 && list.current === mine; more += 1) {
        const after = nextStart(mine.pages);
        if (after === undefined || mine.sight.end < rowsOf(mine.pages).length - NEAR) break;
        await load(mine.pages.length, after);
      }
    },
    [name],
  );
  const loop = usePolling(name, poll);
  const onSight = useCallback(
    (first: number, end: number) => {
      const mine = list.current;
      mine.sight = { first, end };
      const count = rowsOf(mine.pages).length;
      if (count > 0 && end >= count - NEAR && nextStart(mine.pages) !== undefined) loop.refresh();
    },
    [loop.refresh],
  );
  const onStill = useCallback(
    (still: boolean) => {
      const mine = list.current;
      const wasStill = mine.still;
      mine.still = still;
      if (wasStill && !still && heldBack(mine.pages) > 0) loop.refresh();
    },
    [loop.refresh],
  );
  const releaseRows = useCallback(() => {
    list.current.still = false;
    loop.refresh();
  }, [loop.refresh]);
  const { pages, previous } = list.current;
  const shown = pages.length > 0 ? pages : previous;
  return {
    ...loop,
    name,
    rows: useMemo(() => rowsOf(shown), [shown]),
    isLoaded: pages.length > 0,
    isShown: shown.length > 0,
    hasMore: nextStart(pages) !== undefined,
    heldBack: heldBack(pages),
    onSight,
    onStill,
    releaseRows,
  };
}
