/** Windowing: which rows of a long list are drawn. All rows have the same height, so no row is measured. */

import { defaultRangeExtractor, useVirtualizer, type Range } from "@tanstack/react-virtual";
import { useCallback, useLayoutEffect, type RefObject } from "react";

/** The number of rows that are drawn above and below the visible ones. */
const AROUND = 6;

/**
 * Return the virtualizer of a list below a head that stays visible.
 *
 * @param props `keys` identify the rows; heights are in pixels; `kept` is the index of a row that is always drawn, so that
 *     it keeps the focus, or -1
 */
export function useRowWindow({
  scroller,
  keys,
  rowHeight,
  head,
  kept,
}: {
  scroller: RefObject<HTMLElement | null>;
  keys: string[];
  rowHeight: number;
  head: number;
  kept: number;
}) {
  const rows = useVirtualizer<HTMLElement, HTMLElement>({
    count: keys.length,
    getScrollElement: () => scroller.current,
    getItemKey: useCallback((at: number) => keys[at], [keys]),
    estimateSize: () => rowHeight,
    overscan: AROUND,
    scrollMargin: head,
    scrollPaddingStart: head,
    rangeExtractor: useCallback(
      (range: Range) => {
        const visible = defaultRangeExtractor(range);
        return kept < 0 || visible.includes(kept) ? visible : [...visible, kept].sort((a, b) => a - b);
      },
      [kept],
    ),
  });
  useLayoutEffect(() => rows.measure(), [rows, rowHeight]);
  return rows;
}
