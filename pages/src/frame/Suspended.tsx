import { Box, Flex, Strong, Text } from "@chakra-ui/react";

import type { Suspension } from "../api/schema";
import { Icon } from "../components/Icon";
import { ManualLink } from "../components/ManualLink";
import { RelativeTime } from "../components/RelativeTime";

export function Suspended({ suspended }: { suspended: Suspension }) {
  const { since, by, reason } = suspended;
  return (
    <Flex
      as="p"
      gap={2}
      align="flex-start"
      fontSize="sm"
      color="purple.fg"
      bg="purple.subtle"
      borderRadius="sm"
      px={2}
      py={1}
      data-suspended
    >
      <Box as="span" pt="2px" display="flex">
        <Icon name="pause" />
      </Box>
      <Text as="span" overflowWrap="anywhere" minW={0} data-text>
        <Strong>{"Suspended "}</Strong>
        <RelativeTime instant={since} />
        {by ? ` by ${by}` : ""}
        {reason ? `: ${reason}` : ""}. Running jobs deliver what they have read and end. Press Resume to continue.
      </Text>
      <ManualLink topic="suspended" ms="auto" />
    </Flex>
  );
}
