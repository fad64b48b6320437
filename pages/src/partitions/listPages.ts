/**
 * A long list of partitions that is loaded page by page, each from the end of the one before, and refreshed in parts.
 *
 * While the user points at a row, no row may move. New rows are held back, and rows that are gone stay, marked, until the
 * pointer leaves. Values are never changed; each function returns a new list.
 */

import type { ListPage, Row } from "../types";

/** Return a list without any page. */
export function noPages(): ListPage[] {
  return [];
}

/** Return all rows of a list, in order. */
export function rowsOf(pages: ListPage[]) {
  return pages.flatMap((page) => page.rows);
}

/** Return the start of the next page to load: null for the first page, undefined if there is no more. */
export function nextStart(pages: ListPage[]) {
  if (pages.length === 0) return null;
  return pages[pages.length - 1].next ?? undefined;
}

/** Return the numbers of the pages that hold the rows from `first` to before `end`. */
export function pagesInSight(pages: ListPage[], first: number, end: number) {
  const found: number[] = [];
  let start = 0;
  pages.forEach((page, index) => {
    const stop = start + page.rows.length;
    if (start < end && stop > first) found.push(index);
    start = stop;
  });
  return found.length === 0 && pages.length > 0 ? [pages.length - 1] : found;
}

/** Return the number of changes that a list holds back. */
export function heldBack(pages: ListPage[]) {
  return pages.reduce((sum, page) => sum + page.heldBack, 0);
}

/**
 * Return a list with one of its pages replaced.
 *
 * @param index of the page; the one after the last is added
 * @param options the start of the page, and whether no row may move
 */
export function withPage(
  pages: ListPage[],
  index: number,
  response: { partitions: Row[]; next: string | null },
  { after, still }: { after: string | null; still: boolean },
) {
  const known = new Map(rowsOf(pages).map((row) => [row.partition_key, row]));
  const fresh = response.partitions.map((row) => sameOrNew(known.get(row.partition_key), row));
  if (still && index < pages.length) return heldStill(pages, index, fresh);
  const earlier = new Set(rowsOf(pages.slice(0, index)).map((row) => row.partition_key));
  const rows = fresh.filter((row) => !earlier.has(row.partition_key));
  const taken = new Set(rows.map((row) => row.partition_key));
  const changed = [...pages.slice(0, index), { after, next: response.next, rows, heldBack: 0 }];
  if (response.next === null) return changed;
  pages.slice(index + 1).forEach((page, offset) => {
    changed.push({
      ...page,
      // It starts at the new end of this one, so that the next request misses nothing between the two.
      after: offset === 0 ? response.next : page.after,
      rows: page.rows.filter((row) => !taken.has(row.partition_key)),
    });
  });
  return changed;
}

function heldStill(pages: ListPage[], index: number, fresh: Row[]) {
  const found = new Map(fresh.map((row) => [row.partition_key, row]));
  const shown = new Set(rowsOf(pages).map((row) => row.partition_key));
  const added = fresh.filter((row) => !shown.has(row.partition_key)).length;
  return pages.map((page, at) => {
    let gone = 0;
    const rows = page.rows.map((row) => {
      const now = found.get(row.partition_key);
      if (now !== undefined) return now;
      if (at !== index) return row;
      gone += 1;
      return row.isGone ? row : { ...row, isGone: true };
    });
    return { ...page, rows, heldBack: at === index ? added + gone : page.heldBack };
  });
}

/** Return the previous object of a row that has not changed, so that it is not drawn again. */
function sameOrNew(known: Row | undefined, row: Row) {
  return known !== undefined && JSON.stringify(known) === JSON.stringify(row) ? known : row;
}
