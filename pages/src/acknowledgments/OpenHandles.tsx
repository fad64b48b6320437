import { Code, Flex, Stack, Text } from "@chakra-ui/react";

import type { AcknowledgmentSet } from "../types";
import { openHandlesOf } from "./release";

export function OpenHandles({ set }: { set: AcknowledgmentSet }) {
  const owed = openHandlesOf(set);
  return (
    <Stack gap={0.5}>
      {owed.map(({ handle, count, isSink }) => (
        <Flex key={handle} gap={1.5} align="center">
          <Code size="sm" variant="surface" overflowWrap="anywhere" minW={0}>
            {handle}
          </Code>
          {count > 1 && `×${count}`}
          {isSink && (
            <Text fontSize="xs" color="fg.muted" flexShrink={0}>
              released by the job
            </Text>
          )}
        </Flex>
      ))}
      {owed.length === 0 && <Text color="fg.muted">none: the set is about to end</Text>}
      <Text fontSize="xs" color="fg.muted">
        {`progress ${Math.round(set.progress * 100)} %`}
      </Text>
    </Stack>
  );
}
