/**
 * A table of thousands of rows that draws only the visible ones. All rows have the same height. On narrow screens a row
 * takes three lines, and the head keeps only sorting and selection.
 *
 * Screen readers see a table. The arrow keys move from row to row. The row with the focus stays drawn while scrolling, so
 * that the focus is never lost.
 */

import { Box, Grid } from "@chakra-ui/react";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";

import { useSize } from "../components/useSize";
import type { Content, Row, RowsColumn } from "../types";
import { DrawnRow } from "./DrawnRow";
import { anchoredTop, topToShow, visibleRows } from "./virtualRows";

const HEAD = 36;
/** The width of all columns at their narrowest, with gaps. Below it the table scrolls sideways. */
const NARROWEST = "1040px";

/** The style of all rows: a style for each row would cost as much as the row itself. */
const ROWS = {
  "& [data-key]": {
    position: "absolute",
    insetInline: 0,
    display: "grid",
    alignItems: "center",
    columnGap: 3,
    px: 3,
    borderBottomWidth: "1px",
    borderColor: "border",
    cursor: "pointer",
  },
  "& [data-key]:hover": { bg: "bg.muted" },
  "& [data-key][data-open]": { bg: "bg.emphasized" },
  "& [data-key][data-selected]": { bg: "brand.muted" },
  "& [data-key] > [role=cell]": {
    minW: 0,
    display: "flex",
    alignItems: "center",
    overflow: "hidden",
    py: "2px",
    fontVariantNumeric: "tabular-nums",
  },
  "& [data-key] > [data-align=end]": { justifyContent: "flex-end", textAlign: "end" },
};

/**
 * @param props `name` identifies a list: another list is shown from its start. `isBusy` is whether the rows are still those of the
 *     list before. `total` is -1 if it is not known. `heads` has the changing headers by the names of columns; these
 *     columns are visible on narrow screens too. `onSight` gets the visible rows, `onStill` whether no row may move
 *     because the user points at one
 */
export function RowsTable({
  name,
  label,
  columns,
  heads,
  rows,
  total,
  rowHeight: wideHeight,
  narrowBelow,
  narrowHeight,
  narrowRow,
  selectedKeys,
  openKey,
  onSight,
  onStill,
  onOpen,
  isBusy,
  end,
}: {
  name: string;
  label: string;
  columns: RowsColumn[];
  heads: Record<string, { title: Content; sort?: "ascending" | "descending" | "other" | "none" }>;
  rows: Row[];
  total: number;
  rowHeight: number;
  selectedKeys: { has: (key: string) => boolean };
  narrowBelow: number;
  narrowHeight: number;
  narrowRow: (row: Row, isSelected: boolean) => Content;
  openKey: string | null;
  onSight: (first: number, end: number) => void;
  onStill: (still: boolean) => void;
  onOpen: (key: string) => void;
  isBusy: boolean;
  end: Content;
}) {
  const [size, measure] = useSize();
  const scroller = useRef<HTMLElement>(null);
  const [top, setTop] = useState(0);
  const [focused, setFocused] = useState<string | null>(null);
  const isNarrow = size.width > 0 && size.width < narrowBelow;
  const rowHeight = isNarrow ? narrowHeight : wideHeight;
  const keys = useMemo(() => rows.map((row) => row.partition_key), [rows]);
  const attach = useCallback((element: HTMLElement | null) => {
    scroller.current = element;
    measure(element);
  }, []);

  // Rows that come or go above do not move those in sight.
  const before = useRef({ keys, rowHeight });
  useLayoutEffect(() => {
    const was = before.current;
    before.current = { keys, rowHeight };
    const element = scroller.current;
    // `top`, as reading it from the element would force a layout before the first rows are painted.
    if (element === null || top === 0 || was.rowHeight !== rowHeight || was.keys[0] === undefined) return;
    const wanted = anchoredTop({ top: element.scrollTop, rowHeight, before: was.keys, after: keys });
    if (wanted !== element.scrollTop) element.scrollTop = wanted;
  }, [rows]);

  const shown = useRef(name);
  useLayoutEffect(() => {
    if (shown.current === name) return;
    shown.current = name;
    if (scroller.current !== null) scroller.current.scrollTop = 0;
    setTop(0);
  }, [name]);

  const height = size.height - HEAD;
  const sight = visibleRows({ top, height, rowHeight, count: rows.length });
  useEffect(() => onSight(sight.first, sight.end), [sight.first, sight.end, rows.length, onSight]);
  useEffect(() => () => onStill(false), [onStill]);

  const drawn: number[] = [];
  for (let at = sight.first; at < sight.end; at += 1) drawn.push(at);
  const focusedAt = focused === null ? -1 : keys.indexOf(focused);
  if (focusedAt >= 0 && (focusedAt < sight.first || focusedAt >= sight.end)) drawn.push(focusedAt);

  const goTo = (at: number) => {
    const element = scroller.current;
    const to = Math.min(rows.length - 1, Math.max(0, at));
    if (element === null || to < 0) return;
    const wanted = topToShow({ index: to, top: element.scrollTop, height, rowHeight });
    if (wanted !== null) element.scrollTop = wanted;
    setFocused(keys[to]);
    // The row is drawn when its number is known.
    requestAnimationFrame(() =>
      requestAnimationFrame(() =>
        (element.querySelector(`[data-at="${to}"] [data-opens]`) as HTMLElement | null)?.focus({
          preventScroll: true,
        }),
      ),
    );
  };

  const onKeyDown = (event: KeyboardEvent<HTMLElement>) => {
    if ((event.target as Element).closest("input:not([type=checkbox]), select, textarea") !== null) return;
    // Keyboard users start at the first visible row.
    const topRow = Math.ceil(top / rowHeight);
    const [at, down] = focusedAt < 0 ? [topRow, topRow] : [focusedAt, focusedAt + 1];
    const page = Math.max(1, Math.floor(height / rowHeight) - 1);

    const steps: Record<string, number> = {
      ArrowDown: down,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: rows.length - 1,
    };
    const step = steps[event.key];
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    goTo(step);
  };
  const still = useRef({ pointer: false, keyboard: false });

  const change = (what: { pointer?: boolean; keyboard?: boolean }) => {
    Object.assign(still.current, what);
    onStill(still.current.pointer || still.current.keyboard);
  };
  const template = columns.map((column) => column.track).join(" ");
  return (
    <Box
      ref={attach}
      role="region"
      aria-label={label}
      tabIndex={0}
      aria-busy={isBusy || undefined}
      data-rows={rows.length}
      overflow="auto"
      position="relative"
      flex={1}
      minH={{ base: "420px", md: "260px" }}
      borderWidth={1}
      borderColor="border.emphasized"
      borderRadius="md"
      bg="bg"
      fontSize="sm"
      outlineOffset="-2px"
      overflowAnchor="none"
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onPointerEnter={(event) => event.pointerType !== "touch" && change({ pointer: true })}
      onPointerLeave={() => change({ pointer: false })}
      onFocus={(event) => {
        setFocused(event.target.closest("[data-key]")?.getAttribute("data-key") ?? null);
        change({ keyboard: event.target.closest("[data-key]") !== null && event.target.matches(":focus-visible") });
      }}
      onBlur={(event) => {
        if (event.currentTarget.contains(event.relatedTarget)) return;
        setFocused(null);
        change({ keyboard: false });
      }}
      onKeyDown={onKeyDown}
    >
      <Box role="table" aria-label={label} aria-rowcount={total < 0 ? -1 : total + 1} aria-colcount={columns.length}>
        <Box role="rowgroup" position="sticky" top={0} zIndex={2} bg="bg.muted" minW={isNarrow ? undefined : NARROWEST}>
          <Grid
            role="row"
            aria-rowindex={1}
            templateColumns={isNarrow ? "20px auto 1fr auto" : template}
            h={`${HEAD}px`}
            alignItems="center"
            px={3}
            columnGap={3}
            borderBottomWidth={1}
            borderColor="border.emphasized"
            color="fg.muted"
            fontWeight="semibold"
            fontSize="xs"
          >
            {columns.map((column) => (
              <Box
                key={column.name}
                role="columnheader"
                aria-sort={heads[column.name]?.sort}
                display="flex"
                alignItems="center"
                justifyContent={column.align === "end" ? "flex-end" : "flex-start"}
                minW={0}
                whiteSpace="nowrap"
                {...(isNarrow && heads[column.name] === undefined ? { srOnly: true } : {})}
              >
                {heads[column.name]?.title ?? column.title}
              </Box>
            ))}
          </Grid>
        </Box>
        <Box
          role="rowgroup"
          css={ROWS}
          position="relative"
          minW={isNarrow ? undefined : NARROWEST}
          opacity={isBusy ? 0.6 : undefined}
          transition={isBusy ? "opacity 0.1s 0.4s" : undefined}
          style={{ height: rows.length * rowHeight }}
        >
          {drawn.map((at) => (
            <DrawnRow
              key={keys[at]}
              at={at}
              row={rows[at]}
              columns={columns}
              template={template}
              height={rowHeight}
              narrowRow={isNarrow ? narrowRow : null}
              isSelected={selectedKeys.has(keys[at])}
              isOpen={openKey === keys[at]}
              onOpen={onOpen}
            />
          ))}
        </Box>
      </Box>
      {end}
    </Box>
  );
}
