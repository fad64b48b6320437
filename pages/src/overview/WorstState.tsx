import { Badge, Flex, Text, VisuallyHidden } from "@chakra-ui/react";

import type { SourceCard } from "../api/schema";
import { Chip } from "../components/Chip";
import { Icon } from "../components/Icon";
import { PageLink } from "../components/PageLink";
import { capitalized } from "../format/text";
import { segmentsOf } from "../states";
import { alarmTarget } from "../urls";

/** What is worst about a source: its first alarm, its suspension, or the worst state of its partitions. */
export function WorstState({ card }: { card: SourceCard }) {
  const [alarm, ...others] = card.alarms;
  if (alarm !== undefined) {
    const text = capitalized(alarm.text);
    return (
      <Flex gap={1.5} minW={0} color={alarm.level === "error" ? "red.fg" : "orange.fg"} data-level={alarm.level}>
        <Icon name="alert" mt={0.5} />
        <VisuallyHidden>{alarm.level === "error" ? "Error: " : "Warning: "}</VisuallyHidden>
        <PageLink
          to={alarmTarget({ connection: card.connection_id, source: card.source }, alarm.about)}
          data-about={alarm.about}
          color="inherit"
          display="block"
          lineClamp={2}
          overflowWrap="anywhere"
          title={text}
        >
          {text}
        </PageLink>
        {others.length > 0 && (
          <Text fontSize="xs" whiteSpace="nowrap" title={`and ${others.length} more`}>
            {`+${others.length}`}
          </Text>
        )}
      </Flex>
    );
  }
  if (card.suspended)
    return (
      <Badge size="xs" colorPalette="purple" variant="subtle" title={card.suspended.reason}>
        Suspended
      </Badge>
    );
  const [worst] = segmentsOf(card);
  return worst === undefined ? "–" : <Chip state={worst.state} />;
}
