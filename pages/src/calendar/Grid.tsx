import { Box, chakra } from "@chakra-ui/react";
import { useCallback, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { useNavigate } from "react-router-dom";

import type { SourceCard } from "../api/schema";
import { PointerDetails } from "../chart/PointerDetails";
import type { Place } from "../types";
import { About } from "./About";
import { firstCell, nextCell, type CalendarGrid } from "./cells";
import { GridCell } from "./GridCell";
import { targetOf } from "./target";

/** The calendar: a row for each day or week, and a cell for each interval. */
export function Grid({
  grid,
  place,
  card,
  isExact,
}: {
  grid: CalendarGrid;
  place: Place;
  card: SourceCard | null;
  isExact: boolean;
}) {
  const navigate = useNavigate();
  const table = useRef<HTMLTableElement>(null);
  const [pointed, setPointed] = useState<string | null>(null);
  const [row, column] = useMemo(() => {
    const [first, second] = (pointed ?? "").split(" ").map(Number);
    return grid.rows[first]?.cells[second] ? [first, second] : firstCell(grid.rows);
  }, [grid, pointed]);
  const active = grid.rows[row]?.cells[column] ?? null;
  const onOpen = useCallback(
    (at: string) => {
      const [first, second] = at.split(" ").map(Number);
      const cell = grid.rows[first]?.cells[second];
      const target = cell && targetOf(cell, place, card);
      if (target) navigate(target);
    },
    [grid, place, card, navigate],
  );
  const onKeyDown = (event: KeyboardEvent<HTMLElement>) => {
    const at = (event.target as Element).getAttribute("data-cell");
    if (at === null) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onOpen(at);
      return;
    }
    const next = nextCell(event.key, grid.rows, [row, column]);
    if (next === null) return;
    event.preventDefault();
    const cell = table.current?.querySelector<HTMLElement>(`[data-cell="${next.join(" ")}"]`);
    cell?.focus();
  };
  return (
    <>
      <Box
        flex={1}
        minH={{ base: "320px", md: "200px" }}
        overflow="auto"
        borderWidth={1}
        borderColor="border.emphasized"
        borderTopRadius="md"
        bg="bg"
        data-calendar={grid.rows.length}
      >
        <chakra.table
          ref={table}
          role="grid"
          aria-label={`Intervals of ${place.source}, in UTC`}
          w="full"
          css={{ borderCollapse: "separate", borderSpacing: 0, tableLayout: "fixed" }}
          minW={`${130 + grid.columns.length * 26}px`}
          onKeyDown={onKeyDown}
        >
          <chakra.thead position="sticky" top={0} zIndex={2} bg="bg.muted">
            <tr>
              <Head scope="col" isCorner>
                UTC
              </Head>
              {grid.columns.map((title) => (
                <Head key={title} scope="col">
                  {title}
                </Head>
              ))}
            </tr>
          </chakra.thead>
          <tbody>
            {grid.rows.map((each, index) => (
              <tr key={each.start}>
                <Head scope="row" isCorner>
                  {each.title}
                </Head>
                {each.cells.map((cell, at) =>
                  cell === null ? (
                    <td key={at} role="gridcell" aria-label="outside of the time range" />
                  ) : (
                    <GridCell
                      key={at}
                      cell={cell}
                      at={`${index} ${at}`}
                      isActive={index === row && at === column}
                      leads={targetOf(cell, place, card) !== null}
                      onPoint={setPointed}
                      onOpen={onOpen}
                    />
                  ),
                )}
              </tr>
            ))}
          </tbody>
        </chakra.table>
      </Box>
      <PointerDetails hint="Point at an interval, or use the arrow keys. Press Enter to open its partitions.">
        {active !== null && <About cell={active} place={place} isExact={isExact} />}
      </PointerDetails>
    </>
  );
}

function Head({ scope, isCorner = false, children }: { scope: "row" | "col"; isCorner?: boolean; children: string }) {
  return (
    <chakra.th
      scope={scope}
      role={scope === "row" ? "rowheader" : "columnheader"}
      h="28px"
      px={isCorner ? 2 : 0}
      w={isCorner ? "130px" : undefined}
      position={isCorner ? "sticky" : undefined}
      insetInlineStart={isCorner ? 0 : undefined}
      zIndex={isCorner ? 1 : undefined}
      bg={scope === "col" ? "bg.muted" : "bg"}
      color="fg.muted"
      fontSize="xs"
      fontWeight={scope === "col" ? "semibold" : "normal"}
      fontVariantNumeric="tabular-nums"
      textAlign={isCorner ? "start" : "center"}
      whiteSpace="nowrap"
    >
      {children}
    </chakra.th>
  );
}
