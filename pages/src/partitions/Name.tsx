import { Box, chakra, Text } from "@chakra-ui/react";

import { Shortened } from "../components/Shortened";
import type { Row } from "../types";

/** The key of a partition, which opens its drawer. */
export function Name({ row, onOpen }: { row: Row; onOpen: (key: string) => void }) {
  return (
    <Box minW={0} w="full">
      <chakra.button
        type="button"
        data-opens
        aria-haspopup="dialog"
        aria-label={row.isGone ? `${row.partition_key}, no longer in this list` : row.partition_key}
        display="flex"
        maxW="full"
        minW={0}
        textAlign="start"
        fontWeight="medium"
        cursor="pointer"
        borderRadius="sm"
        _hover={{ textDecoration: "underline" }}
        onClick={() => onOpen(row.partition_key)}
      >
        <Shortened text={row.partition_key} tail={28} />
      </chakra.button>
      {row.last_error && (
        <Text fontSize="xs" color="red.fg" truncate title={row.last_error}>
          {row.attempts > 0 ? `failed ${row.attempts}×: ` : ""}
          {row.last_error}
        </Text>
      )}
    </Box>
  );
}
