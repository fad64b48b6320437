import { Box, Flex, Text } from "@chakra-ui/react";
import { useMemo } from "react";

import { CopyButton } from "../components/CopyButton";
import type { JsonObject } from "../types";

export function Json({ title, label, value }: { title: string; label: string; value: JsonObject }) {
  const text = useMemo(() => JSON.stringify(value, null, 2), [value]);
  return (
    <Box minW={0}>
      <Flex justify="space-between" align="center" mb={1}>
        <Text fontSize="xs" color="fg.muted">
          {title}
        </Text>
        <CopyButton text={text} label={`Copy ${label.toLowerCase()}`} />
      </Flex>
      <Box
        as="pre"
        tabIndex={0}
        role="region"
        aria-label={label}
        fontSize="xs"
        fontFamily="mono"
        borderWidth={1}
        borderColor="border.emphasized"
        borderRadius="md"
        bg="bg.muted"
        p={3}
        maxH="460px"
        overflow="auto"
        dir="ltr"
      >
        {text}
      </Box>
    </Box>
  );
}
