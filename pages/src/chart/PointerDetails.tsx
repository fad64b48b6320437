import { Box, Text } from "@chakra-ui/react";

import type { Content } from "../types";

/** The details of the item at the pointer or with the focus. They have a fixed place, so that nothing moves or is covered. */
export function PointerDetails({ children, hint }: { children?: Content; hint: string }) {
  return (
    <Box
      minH="74px"
      borderWidth={1}
      borderColor="border.emphasized"
      borderTopWidth={0}
      borderBottomRadius="md"
      bg="bg.muted"
      px={3}
      py={2}
      fontSize="sm"
      flexShrink={0}
      data-pointed
    >
      {children ?? <Text color="fg.muted">{hint}</Text>}
    </Box>
  );
}
