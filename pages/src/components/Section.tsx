import { Box, Flex, Heading } from "@chakra-ui/react";

import type { Content, Styles } from "../types";

/** A part of a page with a heading. */
export function Section({
  title,
  aside,
  children,
  ...rest
}: { title: string; aside?: Content; children?: Content } & Styles) {
  return (
    <Box as="section" aria-label={title} {...rest}>
      <Flex align="center" justify="space-between" gap={2} mb={2} minH={6} wrap="wrap">
        <Heading as="h2" size="sm">
          {title}
        </Heading>
        {aside}
      </Flex>
      {children}
    </Box>
  );
}
