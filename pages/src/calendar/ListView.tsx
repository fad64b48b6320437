import { Flex } from "@chakra-ui/react";

import type { SourceCard } from "../api/schema";
import { PageLink } from "../components/PageLink";
import { countText } from "../format/text";
import { SmallTable } from "../table/SmallTable";
import type { Place } from "../types";
import type { CalendarGrid, Cell } from "./cells";
import { INTERVALS } from "./intervalStates";
import { Sign } from "./Sign";
import { targetOf } from "./target";
import { intervalText, runText } from "./texts";

/** The same intervals as a table, the latest one first. */
export function ListView({ grid, place, card }: { grid: CalendarGrid; place: Place; card: SourceCard | null }) {
  const cells = grid.rows
    .flatMap((row) => row.cells.toReversed())
    .filter((cell): cell is Cell => cell !== null && cell.state !== "ahead" && cell.state !== "none");
  return (
    <SmallTable
      label="Intervals"
      rows={cells}
      keyOf={(cell: Cell) => new Date(cell.start).toISOString()}
      columns={[
        {
          name: "interval",
          title: "Interval",
          cell: (cell: Cell) => {
            const target = targetOf(cell, place, card);
            return target === null ? intervalText(cell) : <PageLink to={target}>{intervalText(cell)}</PageLink>;
          },
        },
        {
          name: "state",
          title: "State",
          cell: (cell: Cell) => (
            <Flex gap={2} align="center">
              <Sign state={cell.state} w="22px" h="20px" />
              {INTERVALS[cell.state].label}
            </Flex>
          ),
        },
        {
          name: "records",
          title: "Records",
          align: "end",
          cell: (cell: Cell) => countText(cell.known?.counts?.records),
        },
        {
          name: "batches",
          title: "Batches",
          align: "end",
          cell: (cell: Cell) => countText(cell.known?.counts?.batches),
        },
        { name: "late", title: "Late", align: "end", cell: (cell: Cell) => countText(cell.known?.late?.records) },
        {
          name: "dead",
          title: "Dead letters",
          align: "end",
          cell: (cell: Cell) => countText(cell.known?.counts?.dead_letters),
        },
        {
          name: "about",
          title: "Partitions",
          cell: (cell: Cell) => cell.runs.map(runText).join("; ") || cell.held[0]?.reason || "–",
        },
      ]}
    />
  );
}
