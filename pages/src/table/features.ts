/** The features of TanStack Table that the tables use, and how their columns are drawn. */

import {
  createSortedRowModel,
  metaHelper,
  rowSelectionFeature,
  rowSortingFeature,
  sortFn_alphanumeric,
  tableFeatures,
  type ReactTable,
  type RowData,
  type Row as TableRow,
} from "@tanstack/react-table";

/**
 * The layout of a column: `track` is its width as a column of a grid, and `align` is "end" for numbers. With
 * `isOtherOrder`, sorting by it is neither ascending nor descending. `isInHead` is whether the head has it on narrow
 * screens too.
 */
type ColumnLayout = {
  track?: string;
  align?: "end";
  width?: string;
  maxW?: string;
  isOtherOrder?: boolean;
  isInHead?: boolean;
};

export const features = tableFeatures({
  rowSelectionFeature,
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns: { alphanumeric: sortFn_alphanumeric },
  columnMeta: metaHelper<ColumnLayout>(),
});

export type Features = typeof features;
export type TableOf<Of extends RowData> = ReactTable<Features, Of>;
export type RowOf<Of extends RowData> = TableRow<Features, Of>;
