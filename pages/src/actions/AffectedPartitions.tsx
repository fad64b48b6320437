import { Flex, Stack, Text } from "@chakra-ui/react";

import { Chip } from "../components/Chip";
import { Shortened } from "../components/Shortened";
import { plural } from "../format/text";
import type { Row } from "../types";

const LISTED = 6;

export function AffectedPartitions({ rows, leftOut }: { rows: Row[]; leftOut: number }) {
  return (
    <Stack
      as="ul"
      gap={1}
      listStyleType="none"
      borderWidth={1}
      borderColor="border"
      borderRadius="md"
      p={2}
      fontSize="sm"
      aria-label="Affected partitions"
    >
      {rows.slice(0, LISTED).map((row) => (
        <Flex as="li" key={row.partition_key} gap={2} align="center" minW={0}>
          <Chip state={row.state} size="xs" />
          <Shortened text={row.partition_key} tail={28} />
        </Flex>
      ))}
      {rows.length > LISTED && (
        <Text as="li" color="fg.muted">
          {`and ${rows.length - LISTED} more`}
        </Text>
      )}
      {leftOut > 0 && (
        <Text as="li" color="fg.muted">
          {`${plural(leftOut, "other selected partition is", "other selected partitions are")} left out: the action does not apply to them.`}
        </Text>
      )}
    </Stack>
  );
}
