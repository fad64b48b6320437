import { Box, Flex, Text } from "@chakra-ui/react";

import type { Content } from "../types";
import { Icon } from "./Icon";
import { ManualLink } from "./ManualLink";

/**
 * One of several parts of a page that cannot be shown because of a problem.
 *
 * @param props `topic`
 *     is where the manual says more
 */
export function ProblemPart({
  title,
  text,
  icon,
  kind,
  topic,
  children,
}: {
  title: string;
  text?: Content;
  icon: string;
  kind: string;
  topic?: string;
  children?: Content;
}) {
  return (
    <Flex
      gap={3}
      align="flex-start"
      wrap="wrap"
      p={4}
      borderWidth={1}
      borderColor="border.emphasized"
      borderStartWidth={4}
      borderStartColor="orange.solid"
      borderRadius="md"
      maxW="760px"
      role="alert"
      data-problem={kind}
    >
      <Box color="orange.fg" pt="2px">
        <Icon name={icon} size={5} />
      </Box>
      <Box minW={0} flex="1 1 200px">
        <Text fontWeight="semibold">{title}</Text>
        <Text fontSize="sm" color="fg.muted" overflowWrap="anywhere">
          {text}
        </Text>
      </Box>
      {topic && <ManualLink topic={topic} />}
      {children}
    </Flex>
  );
}
