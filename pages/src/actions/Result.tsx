import { Flex, Text } from "@chakra-ui/react";

import type { ActionResult } from "../api/schema";
import { Chip } from "../components/Chip";
import { Shortened } from "../components/Shortened";
import { OUTCOMES } from "./outcomes";

export function Result({ result }: { result: ActionResult }) {
  return (
    <>
      <Flex gap={2} align="center" minW={0}>
        <Shortened text={result.key} tail={28} fontWeight="medium" />
      </Flex>
      <Text>{OUTCOMES[result.outcome][0]}.</Text>
      <Text color="fg.muted">{result.detail}</Text>
      {result.partition && (
        <Flex gap={2} align="center" mt={1}>
          Current state:
          <Chip state={result.partition.state} size="xs" />
          {result.partition.owner && <Shortened text={result.partition.owner.name} />}
        </Flex>
      )}
    </>
  );
}
