import { Badge, Box, Flex, Grid, Heading, LinkBox, LinkOverlay, Stack, Text } from "@chakra-ui/react";
import { memo } from "react";
import { Link as RouterLink } from "react-router-dom";

import type { SourceCard } from "../api/schema";
import { CompleteUntil } from "../components/CompleteUntil";
import { Statistic } from "../components/Statistic";
import { useNow } from "../format/clock";
import { countText, rateText } from "../format/text";
import { duration, lagText, longestLeaseText, secondsUntil, waitText } from "../format/time";
import { AlarmLine } from "../frame/AlarmLine";
import { PartialBadge } from "../frame/PartialBadge";
import { StatusBar } from "../frame/StatusBar";
import { worstLevel } from "../states";
import { pathOf } from "../urls";
import { Legend } from "./Legend";
import { Trend } from "./Trend";

/** The summary of a source. The whole card is a link to it. */
export const Card = memo(function Card({ card }: { card: SourceCard }) {
  const level = worstLevel(card);
  const accent =
    level === "error"
      ? "red.solid"
      : level === "warning"
        ? "orange.solid"
        : card.suspended
          ? "purple.solid"
          : "border.emphasized";
  return (
    <LinkBox
      as="article"
      aria-label={card.source}
      data-source={card.source}
      borderWidth={1}
      borderColor="border.emphasized"
      borderStartWidth={4}
      borderStartColor={accent}
      borderRadius="md"
      bg="bg"
      p={4}
      minW={0}
      display="flex"
      flexDirection="column"
      gap={3}
      transition="box-shadow 0.15s"
      _hover={{ boxShadow: "md" }}
      _focusWithin={{ boxShadow: "md" }}
    >
      <Flex justify="space-between" align="flex-start" gap={2} wrap="wrap">
        <Box minW={0} flex="1 1 150px">
          <Heading as="h3" size="md" truncate title={card.source} dir="auto">
            <LinkOverlay asChild>
              <RouterLink to={pathOf({ connection: card.connection_id, source: card.source })}>
                {card.source}
              </RouterLink>
            </LinkOverlay>
          </Heading>
          <Flex gap={1.5} mt={1} minH={5} align="center">
            {card.kind && (
              <Badge size="xs" variant="outline" colorPalette="gray">
                {card.kind}
              </Badge>
            )}
            {card.suspended && (
              <Badge size="xs" colorPalette="purple" variant="subtle" title={card.suspended.reason}>
                Suspended
              </Badge>
            )}
            <PartialBadge card={card} size="xs" />
          </Flex>
        </Box>
        <Trend completed={card.completed} />
      </Flex>
      {card.alarms.length > 0 && (
        <Stack gap={1}>
          {card.alarms.slice(0, 3).map((alarm, number) => (
            <AlarmLine
              key={`${alarm.about} ${number}`}
              alarm={alarm}
              place={{ connection: card.connection_id, source: card.source }}
            />
          ))}
          {card.alarms.length > 3 && (
            <Text fontSize="xs" color="fg.muted">
              {`and ${card.alarms.length - 3} more`}
            </Text>
          )}
        </Stack>
      )}
      <Box>
        <StatusBar card={card} />
        <Legend card={card} />
      </Box>
      <Grid as="dl" templateColumns="repeat(auto-fill, minmax(100px, 1fr))" gap={3} mt="auto">
        <Statistic name="Lag">{lagText(card.lag)}</Statistic>
        <Statistic name="Complete until">
          <CompleteUntil watermark={card.watermark} />
        </Statistic>
        <Statistic name="Throughput">{rateText(card.throughput)}</Statistic>
        <Statistic name="Workers">{countText(card.workers)}</Statistic>
        <Statistic name="Longest wait">{waitText(card.oldest_waiting_seconds)}</Statistic>
        <Statistic name="Longest lease">{longestLeaseText(card.oldest_lease)}</Statistic>
        <Statistic name="Pending batches">{countText(card.pending_sets)}</Statistic>
      </Grid>
      {card.pending_sets > 0 && card.next_set_expires_at && (
        <Text fontSize="xs" color="fg.muted" mt={-2}>
          {"Acknowledgments: "}
          <ExpiresIn instant={card.next_set_expires_at} />
        </Text>
      )}
    </LinkBox>
  );
});

function ExpiresIn({ instant }: { instant: string }) {
  const left = secondsUntil(instant, useNow());
  return left > 0 ? `the next expires in ${duration(left, { short: true })}` : "the next one is overdue";
}
