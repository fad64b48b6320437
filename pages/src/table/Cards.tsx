import { Box, Grid, Stack, Text } from "@chakra-ui/react";

import type { Column } from "../types";

export function Cards({
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
