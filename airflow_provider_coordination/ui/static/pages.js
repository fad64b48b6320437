/**
 * A long list of partitions that is loaded page by page, each from the end of the one before, and refreshed in parts.
 *
 * While the user points at a row, no row may move. New rows are held back, and rows that are gone stay, marked, until the
 * pointer leaves. Values are never changed; each function returns a new list.
 */

/** Return a list without any page. @returns {ListPage[]} */
export function noPages() {
  return [];
}

/**
 * Return all rows of a list, in order.
 *
 * @param {ListPage[]} pages
 */
export function rowsOf(pages) {
  return pages.flatMap((page) => page.rows);
}

/**
 * Return the start of the next page to load: null for the first page, undefined if there is no more.
 *
 * @param {ListPage[]} pages
 */
export function nextStart(pages) {
  if (pages.length === 0) return null;
  return pages[pages.length - 1].next ?? undefined;
}

/**
 * Return the numbers of the pages that hold the rows from `first` to before `end`.
 *
 * @param {ListPage[]} pages
 * @param {number} first
 * @param {number} end
 */
export function pagesInSight(pages, first, end) {
  /** @type {number[]} */
  const found = [];
  let start = 0;
  pages.forEach((page, index) => {
    const stop = start + page.rows.length;
    if (start < end && stop > first) found.push(index);
    start = stop;
  });
  return found.length === 0 && pages.length > 0 ? [pages.length - 1] : found;
}

/**
 * Return the number of changes that a list holds back.
 *
 * @param {ListPage[]} pages
 */
export function heldBack(pages) {
  return pages.reduce((sum, page) => sum + page.heldBack, 0);
}

/**
 * Return a list with one of its pages replaced.
 *
 * @param {ListPage[]} pages
 * @param {number} index of the page; the one after the last is added
 * @param {{partitions: Row[], next: string|null}} response
 * @param {{after: string|null, still: boolean}} options the start of the page, and whether no row may move
 */
export function withPage(pages, index, response, { after, still }) {
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

/**
 * @param {ListPage[]} pages
 * @param {number} index
 * @param {Row[]} fresh
 */
function heldStill(pages, index, fresh) {
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

/**
 * Return the previous object of a row that has not changed, so that it is not drawn again.
 *
 * @param {Row|undefined} known
 * @param {Row} row
 */
function sameOrNew(known, row) {
  return known !== undefined && JSON.stringify(known) === JSON.stringify(row) ? known : row;
}
