/**
 * Windowing: which rows of a long list have to be drawn, and where it scrolls to when rows come and go.
 *
 * All rows have the same height, so nothing has to be measured.
 */

/**
 * Return the rows that have to be drawn: those in sight, and some around them.
 *
 * @param {{top: number, height: number, rowHeight: number, count: number, around?: number}} props
 * @returns {{first: number, end: number}} from the first one to before the end
 */
export function visibleRows({ top, height, rowHeight, count, around = 6 }) {
  const first = Math.max(0, Math.floor(top / rowHeight) - around);
  const end = Math.min(count, Math.ceil((top + height) / rowHeight) + around);
  return { first: Math.min(first, Math.max(0, end)), end: Math.max(0, end) };
}

/**
 * Return where to scroll so that the row on top stays where it is, when rows before it came or went.
 *
 * @param {{
 *   top: number, rowHeight: number, before: string[], after: string[],
 * }} props the keys of the rows as they were, and as
 *     they are
 */
export function anchoredTop({ top, rowHeight, before, after }) {
  const index = Math.floor(top / rowHeight);
  const within = top - index * rowHeight;
  const places = new Map(after.map((key, at) => [key, at]));
  // The row on top may be gone: the next one that is still there keeps its place instead.
  for (let at = index; at < before.length; at += 1) {
    const now = places.get(before[at]);
    if (now !== undefined) return Math.max(0, (now - (at - index)) * rowHeight + within);
  }
  return top;
}

/**
 * Return where to scroll so that a row is in sight; null where it is.
 *
 * @param {{index: number, top: number, height: number, rowHeight: number}} props
 */
export function topToShow({ index, top, height, rowHeight }) {
  if (index * rowHeight < top) return index * rowHeight;
  if ((index + 1) * rowHeight > top + height) return (index + 1) * rowHeight - height;
  return null;
}
