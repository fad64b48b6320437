import { Box, Table } from "@chakra-ui/react";

import type { Column } from "../types";

export function Wide({
  label,
  columns,
  rows,
  keyOf,
}: {
  label: string;
  columns: Column<any>[];
  rows: any[];
  keyOf: (row: any) => string;
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
            {columns.map((column) => (
              <Table.ColumnHeader
                key={column.name}
                as={column.title ? "th" : "td"}
                scope={column.title ? "col" : undefined}
                textAlign={column.align ?? "start"}
                color="fg.muted"
                fontSize="xs"
                whiteSpace="nowrap"
                w={column.width}
              >
                {column.title}
              </Table.ColumnHeader>
            ))}
          </Table.Row>
        </Table.Header>
        <Table.Body>
          {rows.map((row) => (
            <Table.Row key={keyOf(row)} data-row={keyOf(row)} bg="transparent" _hover={{ bg: "bg.muted" }}>
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
                  {column.cell(row)}
                </Table.Cell>
              ))}
            </Table.Row>
          ))}
        </Table.Body>
      </Table.Root>
    </Box>
  );
}
