import { memo, type MouseEvent } from "react";

import type { Content, Row, RowsColumn } from "../types";

type DrawnRowProps = {
  at: number;
  row: Row;
  columns: RowsColumn[];
  template: string;
  height: number;
  isSelected: boolean;
  isOpen: boolean;
  narrowRow: ((row: Row, isSelected: boolean) => Content) | null;
  onOpen: (key: string) => void;
};

export const DrawnRow = memo(function DrawnRow({
  at,
  row,
  columns,
  template,
  height,
  narrowRow,
  isSelected,
  isOpen,
  onOpen,
}: DrawnRowProps) {
  const open = (event: MouseEvent<HTMLElement>) => {
    // A click on the row opens it, unless it selects text or hits a control in the row.
    if ((event.target as Element).closest("a, button, label, input") !== null || String(document.getSelection()) !== "")
      return;
    onOpen(row.partition_key);
  };
  return (
    <div
      role="row"
      aria-rowindex={at + 2}
      data-at={at}
      data-key={row.partition_key}
      data-state={row.state}
      data-selected={isSelected || undefined}
      data-open={isOpen || undefined}
      onClick={open}
      style={{
        top: at * height,
        height,
        gridTemplateColumns: narrowRow ? "minmax(0, 1fr)" : template,
        opacity: row.isGone ? 0.55 : undefined,
      }}
    >
      {narrowRow ? (
        <div role="cell" aria-colspan={columns.length} style={{ display: "block" }}>
          {narrowRow(row, isSelected)}
        </div>
      ) : (
        columns.map((column) => (
          <div key={column.name} role="cell" data-align={column.align}>
            {column.cell(row, isSelected)}
          </div>
        ))
      )}
    </div>
  );
});
