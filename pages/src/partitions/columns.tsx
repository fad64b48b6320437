/** The columns of the partitions. The server sorts: the identifiers of sortable columns are the orders of the API. */

import { createColumnHelper } from "@tanstack/react-table";

import { Chip } from "../components/Chip";
import { Owner } from "../components/Owner";
import { lagText } from "../format/time";
import { SortButton } from "../table/SortButton";
import type { Features } from "../table/features";
import type { Row } from "../types";
import { HeldFor } from "./HeldFor";
import { Name } from "./Name";
import { Progress } from "./Progress";
import { Select } from "./Select";
import { SelectAll } from "./SelectAll";
import { Time } from "./Time";

const columns = createColumnHelper<Features, Row>();

/**
 * Return the columns.
 *
 * @param onOpen opens a partition
 */
export function columnsOf(onOpen: (key: string) => void) {
  return columns.columns([
    columns.display({
      id: "select",
      header: ({ table }) => <SelectAll table={table} />,
      cell: ({ row }) => <Select row={row} />,
      meta: { track: "20px", isInHead: true },
    }),
    columns.accessor("state", {
      id: "urgency",
      header: ({ column }) => (
        <SortButton column={column} title="State" hint="Most urgent first: parked, lease expired, closed" />
      ),
      cell: ({ row }) => <Chip state={row.original.state} />,
      meta: { track: "112px", isOtherOrder: true, isInHead: true },
    }),
    columns.accessor("partition_key", {
      id: "key",
      header: ({ column }) => <SortButton column={column} title="Partition" />,
      cell: ({ row }) => <Name row={row.original} onOpen={onOpen} />,
      meta: { track: "minmax(220px, 2.2fr)", isInHead: true },
    }),
    columns.display({
      id: "owner",
      header: "Owner",
      cell: ({ row }) => <Owner owner={row.original.owner} withHost />,
      meta: { track: "minmax(140px, 1.2fr)" },
    }),
    columns.display({
      id: "held",
      header: "Held for",
      cell: ({ row }) => <HeldFor row={row.original} />,
      meta: { track: "72px", align: "end" },
    }),
    columns.accessor("priority", {
      id: "priority",
      header: ({ column }) => <SortButton column={column} title="Time" hint="By status, the longest waiting first" />,
      cell: ({ row }) => <Time row={row.original} />,
      meta: { track: "148px", align: "end", isInHead: true },
    }),
    columns.accessor("lag", {
      id: "lag",
      header: ({ column }) => (
        <SortButton column={column} title="Lag" hint="The longest lag first, unknown lags last" />
      ),
      cell: ({ row }) => lagText(row.original.lag),
      sortDescFirst: true,
      meta: { track: "84px", align: "end", isInHead: true },
    }),
    columns.display({
      id: "progress",
      header: "Progress",
      cell: ({ row }) => <Progress row={row.original} />,
      meta: { track: "minmax(134px, 1fr)" },
    }),
  ]);
}
