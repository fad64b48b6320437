/**
 * A table of thousands of rows that draws only the visible ones. All rows have the same height. On narrow screens a row
 * takes three lines, and the head keeps only sorting and selection.
 *
 * Screen readers see a table. The arrow keys move from row to row. The row with the focus stays drawn while scrolling, so
 * that the focus is never lost.
 */

import { Box, Grid } from "@chakra-ui/react";
import { flexRender } from "@tanstack/react-table";
import { useEffect, useLayoutEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { flushSync } from "react-dom";

import { useSize } from "../components/useSize";
import type { Content, Row } from "../types";
import { DrawnRow } from "./DrawnRow";
import { anchoredTop } from "./anchoredTop";
import { ariaSort } from "./ariaSort";
import type { RowOf, TableOf } from "./features";
import { useRowWindow } from "./useRowWindow";

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
 *     list before. `total` is -1 if it is not known. `onSight` gets the visible rows, `onStill` whether no row may move
 *     because the user points at one
 */
export function RowsTable({
  table,
  name,
  label,
  total,
  rowHeight: wideHeight,
  narrowBelow,
  narrowHeight,
  narrowRow,
  openKey,
  onSight,
  onStill,
  onOpen,
  isBusy,
  end,
}: {
  table: TableOf<Row>;
  name: string;
  label: string;
  total: number;
  rowHeight: number;
  narrowBelow: number;
  narrowHeight: number;
  narrowRow: (row: RowOf<Row>) => Content;
  openKey: string | null;
  onSight: (first: number, end: number) => void;
  onStill: (still: boolean) => void;
  onOpen: (key: string) => void;
  isBusy: boolean;
  end: Content;
}) {
  const [size, attach, scroller] = useSize();
  const [focused, setFocused] = useState<string | null>(null);
  const isNarrow = size.width > 0 && size.width < narrowBelow;
  const rowHeight = isNarrow ? narrowHeight : wideHeight;
  const { rows } = table.getRowModel();
  const keys = useMemo(() => rows.map((row) => row.id), [rows]);
  const focusedAt = focused === null ? -1 : keys.indexOf(focused);
  const list = useRowWindow({ scroller, keys, rowHeight, head: HEAD, kept: focusedAt });
  const drawn = list.getVirtualItems();

  const before = useRef({ name, keys, rowHeight });
  useLayoutEffect(() => {
    const was = before.current;
    before.current = { name, keys, rowHeight };
    if (was.name !== name) {
      list.scrollToOffset(0);
      return;
    }
    // Rows that come or go above do not move those in sight.
    const top = list.scrollOffset ?? 0;
    if (top === 0 || was.rowHeight !== rowHeight) return;
    const wanted = anchoredTop({ top, rowHeight, before: was.keys, after: keys });
    if (wanted !== top) list.scrollToOffset(wanted);
  }, [list, name, keys, rowHeight]);

  const [first, beyond] = list.range === null ? [0, 0] : [list.range.startIndex, list.range.endIndex + 1];
  useEffect(() => onSight(first, beyond), [first, beyond, rows.length, onSight]);
  useEffect(() => () => onStill(false), [onStill]);

  const goTo = (at: number) => {
    const to = Math.min(keys.length - 1, Math.max(0, at));
    if (to < 0) return;
    list.scrollToIndex(to);
    // The row with the focus is drawn, wherever it is.
    flushSync(() => setFocused(keys[to]));
    scroller.current?.querySelector<HTMLElement>(`[data-at="${to}"] [data-opens]`)?.focus({ preventScroll: true });
  };

  const onKeyDown = (event: KeyboardEvent<HTMLElement>) => {
    if ((event.target as Element).closest("input:not([type=checkbox]), select, textarea") !== null) return;
    // Keyboard users start at the first visible row.
    const topRow = Math.ceil((list.scrollOffset ?? 0) / rowHeight);
    const [at, down] = focusedAt < 0 ? [topRow, topRow] : [focusedAt, focusedAt + 1];
    const page = Math.max(1, Math.floor((size.height - HEAD) / rowHeight) - 1);

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
  const [{ headers }] = table.getHeaderGroups();
  const columns = table.getAllLeafColumns();
  const template = columns.map((column) => column.columnDef.meta?.track).join(" ");
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
            templateColumns={isNarrow ? "20px auto 1fr auto auto" : template}
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
            {headers.map((header) => {
              const { meta } = header.column.columnDef;
              return (
                <Box
                  key={header.id}
                  role="columnheader"
                  aria-sort={ariaSort(header.column)}
                  display="flex"
                  alignItems="center"
                  justifyContent={meta?.align === "end" ? "flex-end" : "flex-start"}
                  minW={0}
                  whiteSpace="nowrap"
                  {...(isNarrow && !meta?.isInHead ? { srOnly: true } : {})}
                >
                  {flexRender(header.column.columnDef.header, header.getContext())}
                </Box>
              );
            })}
          </Grid>
        </Box>
        <Box
          role="rowgroup"
          css={ROWS}
          position="relative"
          minW={isNarrow ? undefined : NARROWEST}
          opacity={isBusy ? 0.6 : undefined}
          transition={isBusy ? "opacity 0.1s 0.4s" : undefined}
          style={{ height: list.getTotalSize() }}
        >
          {drawn.map(({ index, start }) => (
            <DrawnRow
              key={keys[index]}
              at={index}
              top={start - HEAD}
              row={rows[index]}
              columns={columns}
              template={template}
              height={rowHeight}
              narrowRow={isNarrow ? narrowRow : null}
              isSelected={rows[index].getIsSelected()}
              isOpen={openKey === keys[index]}
              onOpen={onOpen}
            />
          ))}
        </Box>
      </Box>
      {end}
    </Box>
  );
}
