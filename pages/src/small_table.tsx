/** A table of some rows, a hundred at first. On narrow screens each row becomes a card. */

import { Box, Button, Grid, Stack, Table, Text } from "@chakra-ui/react";
import { createElement, useState } from "react";

import { useSize } from "./element_size";
import type { Column } from "./types";

const SHOWN = 100;

/** In pixels: tables with few columns stay tables down to this width. */
export const PHONE_WIDTH = 520;

/**
 * @param props
 *     the first column is the subject of the row
 */
export function SmallTable({
  label,
  columns,
  rows,
  keyOf,
  narrowBelow = 720,
}: {
  label: string;
  columns: Column<any>[];
  rows: any[];
  keyOf: (row: any) => string;
  narrowBelow?: number;
}) {
  const [size, measure] = useSize();
  const [limit, setLimit] = useState(SHOWN);
  const isNarrow = size.width > 0 && size.width < narrowBelow;
  const left = rows.length - limit;
  return (
    <>
      <Box ref={measure} minW={0}>
        {createElement(isNarrow ? Cards : Wide, {
          label,
          columns,
          rows: left > 0 ? rows.slice(0, limit) : rows,
          keyOf,
        })}
      </Box>
      {left > 0 && (
        <Button mt={3} size="sm" variant="outline" alignSelf="flex-start" onClick={() => setLimit(limit + SHOWN)}>
          {`Show ${Math.min(SHOWN, left)} more of ${rows.length}`}
        </Button>
      )}
    </>
  );
}

function Wide({
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
      role="region"
      aria-label={label}
    >
      <Table.Root size="sm" aria-label={label}>
        <Table.Header bg="bg.muted">
          <Table.Row bg="bg.muted">
            {columns.map((column) => (
              <Table.ColumnHeader
                key={column.name}
                scope="col"
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

function Cards({
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
  const [first, ...others] = columns;
  return (
    <Stack as="ul" gap={3} listStyleType="none" aria-label={label}>
      {rows.map((row) => (
        <Box
          as="li"
          key={keyOf(row)}
          data-row={keyOf(row)}
          borderWidth={1}
          borderColor="border.emphasized"
          borderRadius="md"
          bg="bg"
          p={3}
          fontSize="sm"
        >
          <Box fontWeight="medium" mb={2} minW={0}>
            {first.cell(row)}
          </Box>
          <Grid
            as="dl"
            templateColumns="repeat(auto-fill, minmax(min(100%, 100px), 1fr))"
            columnGap={3}
            rowGap={2}
            m={0}
          >
            {others.map((column) => (
              <Box key={column.name} minW={0} gridColumn={column.maxW === undefined ? undefined : "1 / -1"}>
                <Text as="dt" fontSize="xs" color="fg.muted">
                  {column.title}
                </Text>
                <Box as="dd" m={0} minW={0} fontVariantNumeric="tabular-nums">
                  {column.cell(row)}
                </Box>
              </Box>
            ))}
          </Grid>
        </Box>
      ))}
    </Stack>
  );
}
