import { Flex, NativeSelect } from "@chakra-ui/react";

import type { Column } from "../types";
import type { TableOf } from "./features";

/** The order of a table whose rows are cards, which have no heads to press. */
export function SortChoice<Of extends object>({ table, columns }: { table: TableOf<Of>; columns: Column<Of>[] }) {
  const [sorted] = table.state.sorting;
  return (
    <Flex justify="flex-end" mb={2}>
      <NativeSelect.Root size="xs" w="auto">
        <NativeSelect.Field
          aria-label="Sort by"
          value={sorted?.id ?? ""}
          onChange={({ target: { value } }) =>
            table.setSorting(
              value === "" ? [] : [{ id: value, desc: table.getColumn(value)?.getFirstSortDir() === "desc" }],
            )
          }
        >
          <option value="">Default order</option>
          {columns
            .filter((column) => column.value !== undefined)
            .map((column) => (
              <option key={column.name} value={column.name}>
                {`Sort by ${column.title.toLowerCase()}`}
              </option>
            ))}
        </NativeSelect.Field>
        <NativeSelect.Indicator />
      </NativeSelect.Root>
    </Flex>
  );
}
