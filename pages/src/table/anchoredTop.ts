/**
 * Return the scroll position at which the top row stays in place after rows before it were added or removed.
 *
 * The virtualizer's own `anchorTo` sees only changes at the ends of a list, and needs the row itself to stay.
 *
 * @param props the keys of the rows as they were, and as they are; positions and heights are in pixels
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
