/** The list of a source's partitions: loaded page by page as one scrolls, and kept fresh where one looks. */

import { ask } from "./api.js";
import { useCallback, useMemo, useRef, useState } from "./host.js";
import { useLoop } from "./live.js";
import { heldBack, noPages, pagesInSight, placeOfMore, rowsOf, withPage } from "./pages.js";
import { sourceApi } from "./urls.js";

/** The first page is what one waits for, and what is refreshed all the time while nobody scrolls: it fills any screen. */
const FIRST_PAGE = 150;
const PAGE = 500;
const NEAR = 80;
const REMEMBERED = 8;
/** Lists as they were last seen: Airflow makes the page anew when one comes back to it. */
/** @type {Map<string, ListPage[]>} */
const lists = new Map();

/**
 * Load a list of partitions page by page, and keep what is in sight fresh.
 *
 * Until the first page of another question is there, the rows are those of the one before: a table that went away would
 * take the focus of whoever sorts or filters with it.
 *
 * @param {Place} place
 * @param {string} question
 */
export function usePartitions(place, question) {
  const name = sourceApi(place.connection, place.source, `partitions?${question}`);
  const list = useRef({ name: "", pages: noPages(), former: noPages(), sight: { first: 0, end: 0 }, still: false });
  if (list.current.name !== name) {
    const { pages, former, still } = list.current;
    list.current = {
      name,
      pages: lists.get(name) ?? noPages(),
      former: pages.length > 0 ? pages : former,
      sight: { first: 0, end: 0 },
      still,
    };
  }
  const [, redraw] = useState(0);
  const look = useCallback(
    /** @param {AbortSignal} signal */
    async (signal) => {
      const mine = list.current;
      /**
       * @param {number} index
       * @param {string|null} after
       */
      const load = async (index, after) => {
        const asked = new URLSearchParams(question);
        asked.set("limit", String(index === 0 ? FIRST_PAGE : PAGE));
        if (after !== null) asked.set("after", after);
        const answer = await ask(sourceApi(place.connection, place.source, `partitions?${asked}`), { signal });
        if (list.current !== mine) return;
        mine.former = noPages();
        mine.pages = withPage(mine.pages, index, answer, { after, still: mine.still });
        lists.delete(name);
        lists.set(name, mine.pages);
        if (lists.size > REMEMBERED) lists.delete(lists.keys().next().value ?? "");
        redraw((count) => count + 1);
      };
      const seen = mine.pages.length === 0 ? [0] : pagesInSight(mine.pages, mine.sight.first, mine.sight.end);
      for (const index of seen)
        if (index < Math.max(1, mine.pages.length)) await load(index, mine.pages[index]?.after ?? null);
      // A page may come back short, where few partitions match: then the next one is asked for as well.
      for (let more = 0; more < 4 && list.current === mine; more += 1) {
        const after = placeOfMore(mine.pages);
        if (after === undefined || mine.sight.end < rowsOf(mine.pages).length - NEAR) break;
        await load(mine.pages.length, after);
      }
    },
    [name],
  );
  const loop = useLoop(look);
  const onSight = useCallback(
    (/** @type {number} */ first, /** @type {number} */ end) => {
      const mine = list.current;
      mine.sight = { first, end };
      const count = rowsOf(mine.pages).length;
      if (count > 0 && end >= count - NEAR && placeOfMore(mine.pages) !== undefined) loop.refresh();
    },
    [loop.refresh],
  );
  const onStill = useCallback(
    (/** @type {boolean} */ still) => {
      const mine = list.current;
      const wasStill = mine.still;
      mine.still = still;
      if (wasStill && !still && heldBack(mine.pages) > 0) loop.refresh();
    },
    [loop.refresh],
  );
  const letMove = useCallback(() => {
    list.current.still = false;
    loop.refresh();
  }, [loop.refresh]);
  const { pages, former } = list.current;
  const shown = pages.length > 0 ? pages : former;
  return {
    ...loop,
    name,
    rows: useMemo(() => rowsOf(shown), [shown]),
    isLoaded: pages.length > 0,
    isShown: shown.length > 0,
    hasMore: placeOfMore(pages) !== undefined,
    heldBack: heldBack(pages),
    onSight,
    onStill,
    letMove,
  };
}
