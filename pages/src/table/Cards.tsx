import { Box, Grid, Stack, Text } from "@chakra-ui/react";

import type { Column } from "../types";
import type { RowOf } from "./features";

export function Cards<Of extends object>({
  label,
  columns,
  rows,
  ...pointing
}: {
  label: string;
  columns: Column<Of>[];
  rows: RowOf<Of>[];
  onPointerEnter: () => void;
  onPointerLeave: () => void;
}) {
  const [first, ...others] = columns;
  return (
    <Stack as="ul" gap={3} listStyleType="none" aria-label={label} {...pointing}>
      {rows.map((row) => (
        <Box
          as="li"
          key={row.id}
          data-row={row.id}
          borderWidth={1}
          borderColor="border.emphasized"
          borderRadius="md"
          bg="bg"
          p={3}
          fontSize="sm"
        >
          <Box fontWeight="medium" mb={2} minW={0}>
            {first.cell(row.original)}
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
                  {column.cell(row.original)}
                </Box>
              </Box>
            ))}
          </Grid>
        </Box>
      ))}
    </Stack>
  );
}
