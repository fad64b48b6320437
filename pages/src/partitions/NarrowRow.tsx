import { Box, Flex, Stack, Text } from "@chakra-ui/react";

import { Chip } from "../components/Chip";
import { Owner } from "../components/Owner";
import { lagText } from "../format/time";
import type { RowOf } from "../table/features";
import type { Row } from "../types";
import { Name } from "./Name";
import { Select } from "./Select";
import { Time } from "./Time";

/** A partition on a narrow screen. */
export function NarrowRow({ row, onOpen }: { row: RowOf<Row>; onOpen: (key: string) => void }) {
  const partition = row.original;
  return (
    <Flex gap={2.5} minW={0} align="flex-start" py={1.5}>
      <Box pt="2px">
        <Select row={row} />
      </Box>
      <Stack gap={0.5} minW={0} flex={1}>
        <Flex justify="space-between" gap={2} align="center">
          <Chip state={partition.state} size="xs" />
          <Box fontSize="xs" fontVariantNumeric="tabular-nums">
            <Time row={partition} />
          </Box>
        </Flex>
        <Name row={{ ...partition, last_error: null }} onOpen={onOpen} />
        <Flex justify="space-between" gap={2} fontSize="xs" color="fg.muted" minW={0}>
          {partition.last_error ? (
            <Text truncate color="red.fg" title={partition.last_error}>
              {partition.last_error}
            </Text>
          ) : (
            <Owner owner={partition.owner} />
          )}
          <Text whiteSpace="nowrap" fontVariantNumeric="tabular-nums">
            {partition.lag === null ? "" : `lag ${lagText(partition.lag)}`}
          </Text>
        </Flex>
      </Stack>
    </Flex>
  );
}
