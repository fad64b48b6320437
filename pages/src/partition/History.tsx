import { Box, Flex, Grid, Text } from "@chakra-ui/react";

import type { TransitionFacts } from "../api/schema";
import { Dot } from "../components/Dot";
import { Instant } from "../components/Instant";
import { Owner } from "../components/Owner";

const PALETTES_OF_KINDS: Record<string, string> = { failed: "red", "taken over": "orange" };
const PALETTES_OF_STATUSES: Record<string, string> = { ASSIGNED: "cyan", COMPLETED: "green", CLOSED: "yellow" };

/** The history of a partition, the latest transition first. */
export function History({ transitions, isKept }: { transitions: TransitionFacts[]; isKept: boolean }) {
  if (transitions.length === 0) {
    return (
      <Text fontSize="sm" color="fg.muted">
        {isKept
          ? "The history has no entry for this partition."
          : "No history is kept. Set history_days of the connection above 0."}
      </Text>
    );
  }
  return (
    <Box as="ol" listStyleType="none" fontSize="sm">
      {transitions.map((each, index) => {
        const palette = paletteOf(each);
        return (
          <Grid
            as="li"
            key={`${each.at} ${index}`}
            data-palette={palette}
            templateColumns="16px minmax(0, 1fr)"
            columnGap={2}
          >
            <Flex direction="column" align="center" aria-hidden>
              <Box pt="6px">
                <Dot palette={palette} size="9px" />
              </Box>
              {index < transitions.length - 1 && <Box w="1px" flex={1} bg="border.emphasized" mt={1} />}
            </Flex>
            <Box pb={3} minW={0}>
              <Flex gap={2} justify="space-between" wrap="wrap">
                <Text fontWeight="medium" overflowWrap="anywhere" minW={0}>
                  {each.reason}
                </Text>
                <Box color="fg.muted" fontSize="xs">
                  <Instant instant={each.at} />
                </Box>
              </Flex>
              <Text fontSize="xs" color="fg.muted">
                {`${each.previous_status} → ${each.status ?? "deleted"}`}
                {each.by ? ` by ${each.by}` : ""}
              </Text>
              {(each.owner ?? each.previous_owner) && (
                <Flex fontSize="xs" gap={1} minW={0}>
                  {each.owner ? "to" : "from"}
                  <Owner owner={each.owner ?? each.previous_owner} fontSize="xs" />
                </Flex>
              )}
            </Box>
          </Grid>
        );
      })}
    </Box>
  );
}

function paletteOf({ kind, status }: TransitionFacts) {
  return PALETTES_OF_KINDS[kind] ?? PALETTES_OF_STATUSES[status ?? ""] ?? "gray";
}
