import { chakra } from "@chakra-ui/react";
import { memo } from "react";

import type { Cell } from "./cells";
import { Sign } from "./Sign";
import { nameOf } from "./texts";

/** An interval in the grid. */
export const GridCell = memo(function GridCell({
  cell,
  at,
  isActive,
  leads,
  onPoint,
  onOpen,
}: {
  cell: Cell;
  at: string;
  isActive: boolean;
  leads: boolean;
  onPoint: (at: string) => void;
  onOpen: (at: string) => void;
}) {
  const isLate = Boolean(cell.known?.late);
  return (
    <chakra.td
      role="gridcell"
      data-cell={at}
      data-interval={new Date(cell.start).toISOString()}
      data-state={cell.state}
      data-late={isLate || undefined}
      tabIndex={isActive ? 0 : -1}
      aria-label={nameOf(cell)}
      p="1px"
      minW="24px"
      cursor={leads ? "pointer" : "default"}
      outlineOffset="-2px"
      scrollMarginInlineStart="140px"
      onFocus={() => onPoint(at)}
      onPointerEnter={() => onPoint(at)}
      onClick={() => onOpen(at)}
    >
      <Sign state={cell.state} isLate={isLate} h="26px" />
    </chakra.td>
  );
});
