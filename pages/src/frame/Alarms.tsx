import { Box, Button, Flex, Stack, Text } from "@chakra-ui/react";
import { useState } from "react";

import type { SourceCard } from "../api/schema";
import type { Place } from "../types";
import { AlarmLine } from "./AlarmLine";
import { Suspended } from "./Suspended";
import { FOLDED, FOLDED_HEIGHT } from "./shared";

/**
 * The alarms of a source: the worst one, and the number of others, which can be unfolded.
 *
 * It always takes the same space, also without alarms, so that an alarm that appears or disappears moves nothing below
 * it from under the pointer.
 */
export function Alarms({ card, place }: { card: SourceCard | null; place: Place }) {
  const [isOpen, setOpen] = useState(false);
  const isFolded = !isOpen;
  const alarms = (card?.alarms ?? []).filter((alarm) => alarm.about !== "suspended");
  const lines = [
    ...(card?.suspended ? [<Suspended key="suspended" suspended={card.suspended} />] : []),
    ...alarms.map((alarm, number) => (
      <AlarmLine key={`${alarm.about} ${number}`} alarm={alarm} place={place} isFolded={isFolded} />
    )),
  ];
  const others = lines.length - 1;
  return (
    <Flex
      as="section"
      aria-label="Alarms"
      data-alarms={lines.length}
      gap={2}
      mb={3}
      align="flex-start"
      flexShrink={0}
      minH={FOLDED_HEIGHT}
      h={isFolded ? FOLDED_HEIGHT : undefined}
    >
      <Stack gap={1} flex={1} minW={0} css={isFolded ? FOLDED : undefined}>
        {isFolded ? lines[0] : lines}
        {lines.length === 0 && card !== null && (
          <Text fontSize="sm" color="fg.muted" px={2} py={1} data-no-alarm>
            No alarms
          </Text>
        )}
      </Stack>
      {lines.length > 0 && (
        <Button
          size="2xs"
          variant="ghost"
          h="29px"
          flexShrink={0}
          aria-expanded={isOpen}
          aria-label={isFolded && others > 0 ? `and ${others} more` : undefined}
          onClick={() => setOpen(!isOpen)}
        >
          {isOpen ? "Show less" : others > 0 ? <More count={others} /> : "Show all"}
        </Button>
      )}
    </Flex>
  );
}

/** The number of other lines, shorter on a phone. */
function More({ count }: { count: number }) {
  return (
    <>
      <Box as="span" hideBelow="md">
        {`and ${count} more`}
      </Box>
      <Box as="span" hideFrom="md">
        {`+${count}`}
      </Box>
    </>
  );
}
