import { Flex, Text } from "@chakra-ui/react";

import { CopyButton } from "../components/CopyButton";

/** A text with a button that copies it. */
export function Copied({ text, label, mono = true }: { text: string; label: string; mono?: boolean }) {
  if (text === null || text === undefined || text === "") return "–";
  return (
    <Flex align="flex-start" gap={1} minW={0}>
      <Text
        fontFamily={mono ? "mono" : undefined}
        fontSize={mono ? "xs" : "sm"}
        pt={mono ? "2px" : 0}
        overflowWrap="anywhere"
        minW={0}
      >
        {text}
      </Text>
      <CopyButton text={String(text)} label={label} />
    </Flex>
  );
}
