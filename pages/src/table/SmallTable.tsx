import { Box, Button } from "@chakra-ui/react";
import { functionalUpdate, useTable, type ColumnDef, type SortingState } from "@tanstack/react-table";
import { useState } from "react";

import { useSize } from "../components/useSize";
import type { Column } from "../types";
import { Cards } from "./Cards";
import { SortChoice } from "./SortChoice";
import { Wide } from "./Wide";
import { features, type Features } from "./features";
import { useStillOrder } from "./useStillOrder";

const SHOWN = 100;

/** In pixels: tables with few columns stay tables down to this width. */
export const PHONE_WIDTH = 520;

/**
 * @param props the first column is the subject of the row. `rows` stay in their order until the user sorts the table.
 *     `sorting` and `onSort` keep the order outside of it
 */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- some pages do not know the type of their rows
export function SmallTable<Of extends object = any>({
  label,
  columns,
  rows,
  keyOf,
  narrowBelow = 720,
  sorting: kept,
  onSort,
}: {
  label: string;
  columns: Column<Of>[];
  rows: Of[];
  keyOf: (row: Of) => string;
  narrowBelow?: number;
  sorting?: SortingState;
  onSort?: (sorting: SortingState) => void;
}) {
  const [size, measure] = useSize();
  const [limit, setLimit] = useState(SHOWN);
  const [own, setOwn] = useState<SortingState>([]);
  const sorting = kept ?? own;
  const table = useTable({
    features,
    columns: columns.map(definitionOf),
    data: rows,
    getRowId: keyOf,
    state: { sorting },
    onSortingChange: (updater) => (onSort ?? setOwn)(functionalUpdate(updater, sorting)),
  });
  const canSort = columns.some((column) => column.value !== undefined);
  const still = useStillOrder(table.getRowModel().rows, (row) => row.id, JSON.stringify(sorting));
  const shown = (canSort ? still.things : table.getRowModel().rows).slice(0, limit);
  const isNarrow = size.width > 0 && size.width < narrowBelow;
  const left = rows.length - limit;
  return (
    <>
      <Box ref={measure} minW={0}>
        {isNarrow ? (
          <>
            {canSort && <SortChoice table={table} columns={columns} />}
            <Cards label={label} columns={columns} rows={shown} {...still.pointing} />
          </>
        ) : (
          <Wide label={label} table={table} columns={columns} rows={shown} {...still.pointing} />
        )}
      </Box>
      {left > 0 && (
        <Button mt={3} size="sm" variant="outline" alignSelf="flex-start" onClick={() => setLimit(limit + SHOWN)}>
          {`Show ${Math.min(SHOWN, left)} more of ${rows.length}`}
        </Button>
      )}
    </>
  );
}

/** Return a column of the table. Rows without a value come last, however it is sorted. */
function definitionOf<Of extends object>({ name, title, value }: Column<Of>): ColumnDef<Features, Of> {
  if (value === undefined) return { id: name, header: title };
  return {
    id: name,
    header: title,
    accessorFn: (row) => value(row) ?? undefined,
    sortUndefined: "last",
  };
}
