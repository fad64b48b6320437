import { flexRender } from "@tanstack/react-table";
import { memo, type MouseEvent } from "react";

import type { Content, Row } from "../types";
import type { RowOf } from "./features";

type DrawnRowProps = {
  at: number;
  top: number;
  row: RowOf<Row>;
  columns: unknown;
  template: string;
  height: number;
  isSelected: boolean;
  isOpen: boolean;
  narrowRow: ((row: RowOf<Row>) => Content) | null;
  onOpen: (key: string) => void;
};

/** Each response makes new rows of the table. One is drawn again only if its partition changed. */
function isSame({ row: drawn, ...before }: DrawnRowProps, { row, ...after }: DrawnRowProps) {
  const names = Object.keys(after) as (keyof typeof after)[];
  return drawn.original === row.original && names.every((name) => before[name] === after[name]);
}

export const DrawnRow = memo(function DrawnRow({
  at,
  top,
  row,
  template,
  height,
  narrowRow,
  isSelected,
  isOpen,
  onOpen,
}: DrawnRowProps) {
  const cells = row.getAllCells();
  const open = (event: MouseEvent<HTMLElement>) => {
    // A click on the row opens it, unless it selects text or hits a control in the row.
    if ((event.target as Element).closest("a, button, label, input") !== null || String(document.getSelection()) !== "")
      return;
    onOpen(row.id);
  };
  return (
    <div
      role="row"
      aria-rowindex={at + 2}
      data-at={at}
      data-key={row.id}
      data-state={row.original.state}
      data-selected={isSelected || undefined}
      data-open={isOpen || undefined}
      onClick={open}
      style={{
        top,
        height,
        gridTemplateColumns: narrowRow ? "minmax(0, 1fr)" : template,
        opacity: row.original.isGone ? 0.55 : undefined,
      }}
    >
      {narrowRow ? (
        <div role="cell" aria-colspan={cells.length} style={{ display: "block" }}>
          {narrowRow(row)}
        </div>
      ) : (
        cells.map((cell) => (
          <div key={cell.id} role="cell" data-align={cell.column.columnDef.meta?.align}>
            {flexRender(cell.column.columnDef.cell, cell.getContext())}
          </div>
        ))
      )}
    </div>
  );
}, isSame);
