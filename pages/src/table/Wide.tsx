import { Box, Table } from "@chakra-ui/react";

import type { Column } from "../types";
import { SortButton } from "./SortButton";
import { ariaSort } from "./ariaSort";
import type { RowOf, TableOf } from "./features";

export function Wide<Of extends object>({
  label,
  table,
  columns,
  rows,
  ...pointing
}: {
  label: string;
  table: TableOf<Of>;
  columns: Column<Of>[];
  rows: RowOf<Of>[];
  onPointerEnter: () => void;
  onPointerLeave: () => void;
}) {
  return (
    <Box
      borderWidth={1}
      borderColor="border.emphasized"
      borderRadius="md"
      overflowX="auto"
      bg="bg"
      tabIndex={0}
      role="group"
      aria-label={label}
    >
      <Table.Root size="sm" aria-label={label}>
        <Table.Header bg="bg.muted">
          <Table.Row bg="bg.muted">
            {table.getFlatHeaders().map(({ id, column }, at) => (
              <Table.ColumnHeader
                key={id}
                as={columns[at].title ? "th" : "td"}
                scope={columns[at].title ? "col" : undefined}
                aria-sort={ariaSort(column)}
                textAlign={columns[at].align ?? "start"}
                color="fg.muted"
                fontSize="xs"
                whiteSpace="nowrap"
                w={columns[at].width}
              >
                {column.getCanSort() ? <SortButton column={column} title={columns[at].title} /> : columns[at].title}
              </Table.ColumnHeader>
            ))}
          </Table.Row>
        </Table.Header>
        <Table.Body {...pointing}>
          {rows.map((row) => (
            <Table.Row key={row.id} data-row={row.id} bg="transparent" _hover={{ bg: "bg.muted" }}>
              {columns.map((column) => (
                <Table.Cell
                  key={column.name}
                  textAlign={column.align ?? "start"}
                  verticalAlign="top"
                  fontVariantNumeric="tabular-nums"
                  // A number and its unit stay together.
                  whiteSpace={column.align === "end" ? "nowrap" : undefined}
                  maxW={column.maxW ?? "360px"}
                >
                  {column.cell(row.original)}
                </Table.Cell>
              ))}
            </Table.Row>
          ))}
        </Table.Body>
      </Table.Root>
    </Box>
  );
}
