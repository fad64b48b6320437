/** A warning or an error on one line. A word shows its level as well as a colour. */

import { Box, Flex, VisuallyHidden } from "@chakra-ui/react";

import type { Content, Styles } from "../types";
import { Icon } from "./Icon";
import { ManualLink } from "./ManualLink";

/**
 * @param props `topic` is where the manual
 *     says more
 */
export function Warning({
  level,
  topic,
  children,
  ...rest
}: { level: "error" | "warning"; topic?: string; children?: Content } & Styles) {
  const isError = level === "error";
  return (
    <Flex
      as="p"
      gap={2}
      align="flex-start"
      fontSize="sm"
      color={isError ? "red.fg" : "orange.fg"}
      bg={isError ? "bg.error" : "bg.warning"}
      borderRadius="sm"
      px={2}
      py={1}
      data-alarm={level}
      {...rest}
    >
      <Box as="span" pt="2px" display="flex">
        <Icon name="alert" />
      </Box>
      <VisuallyHidden>{isError ? "Error: " : "Warning: "}</VisuallyHidden>
      <Box as="span" flex={1} minW={0} overflowWrap="anywhere">
        {children}
      </Box>
      {topic && <ManualLink topic={topic} />}
    </Flex>
  );
}
