import { Box } from "@chakra-ui/react";

import { CopyButton } from "../components/CopyButton";

export function Block({ text, label, maxH = "320px" }: { text: string; label: string; maxH?: string }) {
  return (
    <Box position="relative">
      <Box
        as="pre"
        role="group"
        tabIndex={0}
        aria-label={label}
        fontFamily="mono"
        fontSize="xs"
        bg="bg.muted"
        color="fg"
        borderRadius="md"
        p={3}
        pe={10}
        m={0}
        overflow="auto"
        maxH={maxH}
        whiteSpace="pre-wrap"
        overflowWrap="anywhere"
      >
        {text}
      </Box>
      <Box position="absolute" top={1.5} insetInlineEnd={1.5}>
        <CopyButton text={text} label={`Copy: ${label}`} />
      </Box>
    </Box>
  );
}
