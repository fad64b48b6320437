import type { Table } from "@tanstack/react-table";

import type { Features } from "../table/features";
import type { Row } from "../types";
import { Check } from "./Check";

/** The checkbox that selects exactly the loaded partitions, or none. */
export function SelectAll({ table }: { table: Table<Features, Row> }) {
  const { rows } = table.getRowModel();
  const isAll = rows.length > 0 && rows.every((row) => row.getIsSelected());
  return (
    <Check
      label={`Select all ${rows.length} loaded partitions`}
      isOn={isAll}
      isSome={!isAll && table.getIsSomeRowsSelected()}
      onChange={() => table.setRowSelection(isAll ? {} : Object.fromEntries(rows.map((row) => [row.id, true])))}
    />
  );
}
