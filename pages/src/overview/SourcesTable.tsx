import { Badge, Flex } from "@chakra-ui/react";

import type { SourceCard } from "../api/schema";
import { CompleteUntil } from "../components/CompleteUntil";
import { PageLink } from "../components/PageLink";
import { countText, rateText } from "../format/text";
import { lagText, waitText } from "../format/time";
import { PartialBadge } from "../frame/PartialBadge";
import { levelRank } from "../states";
import { SmallTable } from "../table/SmallTable";
import { numberColumn } from "../table/numberColumn";
import { pathOf } from "../urls";
import { WorstState } from "./WorstState";
import type { OverviewChoices } from "./choices";

const number = numberColumn<SourceCard>;

/** Sources in a compact table, one row each. */
export function SourcesTable({
  connection,
  cards,
  choices,
}: {
  connection: string;
  cards: SourceCard[];
  choices: OverviewChoices;
}) {
  return (
    <SmallTable
      label={`Sources of ${connection}`}
      rows={cards}
      keyOf={(card) => card.source}
      narrowBelow={900}
      sorting={choices.sorting}
      onSort={choices.onSort}
      columns={[
        {
          name: "source",
          title: "Source",
          value: (card) => card.source,
          cell: (card) => (
            <Flex gap={2} align="center" minW={0}>
              <PageLink
                to={pathOf({ connection, source: card.source })}
                fontWeight="semibold"
                dir="auto"
                minW={0}
                overflowWrap="anywhere"
              >
                {card.source}
              </PageLink>
              <PartialBadge card={card} size="xs" />
            </Flex>
          ),
        },
        {
          name: "kind",
          title: "Kind",
          value: (card) => card.kind,
          cell: (card) =>
            card.kind === null ? (
              "–"
            ) : (
              <Badge size="xs" variant="outline" colorPalette="gray">
                {card.kind}
              </Badge>
            ),
        },
        {
          name: "state",
          title: "State",
          maxW: "380px",
          value: (card) => -levelRank(card),
          cell: (card) => <WorstState card={card} />,
        },
        number("lag", "Lag", (card) => card.lag, lagText),
        {
          name: "complete",
          title: "Complete until",
          align: "end",
          value: completeAge,
          cell: (card) => <CompleteUntil watermark={card.watermark} />,
        },
        number("throughput", "Throughput", (card) => card.throughput, rateText),
        number("workers", "Workers", (card) => card.workers, countText),
        number("pending", "Pending", (card) => card.pending_sets, countText),
        number("wait", "Longest wait", (card) => card.oldest_waiting_seconds, waitText),
      ]}
    />
  );
}

/** Return a number that is the larger, the earlier the instant is up to which a source is complete. */
function completeAge({ watermark }: SourceCard) {
  if (watermark === null) return null;
  if (watermark.is_finished) return -Infinity;
  return watermark.until === null ? null : -Date.parse(watermark.until);
}
