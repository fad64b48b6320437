/**
 * Windowing: which rows of a long list are drawn, and how it scrolls when rows are added or removed.
 *
 * All rows have the same height, so no row is measured.
 */

/**
 * Return the rows to draw: the visible ones, and some around them.
 *
 * @returns from the first one to before the end
 */
export function visibleRows({
  top,
  height,
  rowHeight,
  count,
  around = 6,
}: {
  top: number;
  height: number;
  rowHeight: number;
  count: number;
  around?: number;
}): { first: number; end: number } {
  const first = Math.max(0, Math.floor(top / rowHeight) - around);
  const end = Math.min(count, Math.ceil((top + height) / rowHeight) + around);
  return { first: Math.min(first, Math.max(0, end)), end: Math.max(0, end) };
}

/**
 * Return the scroll position at which the top row stays in place after rows before it were added or removed.
 *
 * @param props the keys of the rows as they were, and as
 *     they are
 */
export function anchoredTop({
  top,
  rowHeight,
  before,
  after,
}: {
  top: number;
  rowHeight: number;
  before: string[];
  after: string[];
}) {
  const index = Math.floor(top / rowHeight);
  const within = top - index * rowHeight;
  const places = new Map(after.map((key, at) => [key, at]));
  // The top row may be gone: then the next one that still exists stays in place.
  for (let at = index; at < before.length; at += 1) {
    const now = places.get(before[at]);
    if (now !== undefined) return Math.max(0, (now - (at - index)) * rowHeight + within);
  }
  return top;
}

/** Return the scroll position at which a row is visible; null if it is visible already. */
export function topToShow({
  index,
  top,
  height,
  rowHeight,
}: {
  index: number;
  top: number;
  height: number;
  rowHeight: number;
}) {
  if (index * rowHeight < top) return index * rowHeight;
  if ((index + 1) * rowHeight > top + height) return (index + 1) * rowHeight - height;
  return null;
}
