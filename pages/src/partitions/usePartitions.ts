/** The list of a source's partitions: loaded page by page while scrolling, and kept fresh where it is visible. */

import { useCallbackRef } from "@chakra-ui/react";
import { useMemo, useRef } from "react";

import { fetchLive, usePolling, type Progress } from "../api/live";
import type { PartitionPage } from "../api/schema";
import type { ListPage, Place } from "../types";
import { sourceApi } from "../urls";
import { heldBack, nextStart, noPages, pagesInSight, rowsOf, withPage } from "./listPages";

/** The first page fills any screen. It is the one that users wait for, and that is refreshed while nobody scrolls. */
const FIRST_PAGE = 150;
const PAGE = 500;
const NEAR = 80;

/**
 * Load a list of partitions page by page, and keep its visible part fresh.
 *
 * Until the first page of a new query has arrived, the rows are those of the query before. A table that disappeared would
 * lose the focus of a user who sorts or filters.
 */
export function usePartitions(place: Place, filters: string) {
  const name = sourceApi(place.connection, place.source, `partitions?${filters}`);
  const sight = useRef({ first: 0, end: 0 });
  const isStill = useRef(false);

  const poll = async (signal: AbortSignal, { before, show }: Progress<ListPage[]>) => {
    let pages = before ?? noPages();
    const load = async (index: number, after: string | null) => {
      const query = new URLSearchParams(filters);
      query.set("limit", String(index === 0 ? FIRST_PAGE : PAGE));
      if (after !== null) query.set("after", after);
      const path = sourceApi(place.connection, place.source, `partitions?${query}`);
      const response = await fetchLive<PartitionPage>(name, path, signal);
      pages = withPage(pages, index, response, { after, still: isStill.current });
      show(pages);
    };
    // What is in sight before the first page is there are rows of the query before.
    const visible = before === null ? [0] : pagesInSight(pages, sight.current.first, sight.current.end);
    for (const index of visible) if (index < Math.max(1, pages.length)) await load(index, pages[index]?.after ?? null);
    // A page may be short if few partitions match. Then the next one is requested too.
    for (let more = 0; more < 4; more += 1) {
      const after = nextStart(pages);
      if (after === undefined || sight.current.end < rowsOf(pages).length - NEAR) break;
      await load(pages.length, after);
    }
    return pages;
  };
  const { response, isPrevious, ...list } = usePolling<ListPage[]>(name, poll, { isList: true });
  const rows = useMemo(() => rowsOf(response ?? noPages()), [response]);
  const pages = isPrevious || response === null ? noPages() : response;
  const hasMore = nextStart(pages) !== undefined;
  return {
    ...list,
    name,
    rows,
    isLoaded: pages.length > 0,
    isShown: response !== null,
    hasMore,
    heldBack: heldBack(pages),
    onSight: useCallbackRef((first: number, end: number) => {
      sight.current = { first, end };
      if (pages.length > 0 && rows.length > 0 && hasMore && end >= rows.length - NEAR) list.refresh();
    }),
    onStill: useCallbackRef((still: boolean) => {
      const wasStill = isStill.current;
      isStill.current = still;
      if (wasStill && !still && heldBack(pages) > 0) list.refresh();
    }),
    releaseRows: () => {
      isStill.current = false;
      list.refresh();
    },
  };
}
