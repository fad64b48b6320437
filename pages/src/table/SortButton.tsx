import { chakra, Span } from "@chakra-ui/react";
import type { Column, RowData } from "@tanstack/react-table";

import { Icon } from "../components/Icon";
import type { Features } from "./features";

/** The head of a column by which a table can be sorted. */
export function SortButton<Of extends RowData, Value>({
  column,
  title,
  hint,
}: {
  column: Column<Features, Of, Value>;
  title: string;
  hint?: string;
}) {
  const sorted = column.getIsSorted();
  return (
    <chakra.button
      type="button"
      onClick={() => column.toggleSorting()}
      title={hint}
      fontWeight="semibold"
      cursor="pointer"
      display="inline-flex"
      alignItems="center"
      gap={1}
      color={sorted ? "fg" : "fg.muted"}
    >
      {title}
      {sorted ? <Span aria-hidden>{sorted === "desc" ? "↓" : "↑"}</Span> : <Icon name="sort" size={3} />}
    </chakra.button>
  );
}
