import { Flex } from "@chakra-ui/react";

import type { Calendar, SourceCard } from "../api/schema";
import { CompleteUntil } from "../components/CompleteUntil";
import { RelativeTime } from "../components/RelativeTime";
import { Statistic } from "../components/Statistic";
import { countText } from "../format/text";
import { duration } from "../format/time";

/** How far the intervals of a source are reported, and what its runs add up to. */
export function Summary({ calendar, card }: { calendar: Calendar; card: SourceCard | null }) {
  const { counted, runs } = calendar;
  return (
    <Flex as="dl" gap={6} wrap="wrap" m={0}>
      {counted !== null && (
        <>
          <Statistic name="Intervals of">{duration(counted.every)}</Statistic>
          <Statistic name="Reported until">
            <RelativeTime instant={counted.next} />
          </Statistic>
          <Statistic name="Complete until">
            <CompleteUntil watermark={card?.watermark ?? null} />
          </Statistic>
          <Statistic name="Late records">{countText(counted.late_records)}</Statistic>
        </>
      )}
      {runs.length > 0 && (
        <>
          <Statistic name="Runs of intervals">{countText(runs.length)}</Statistic>
          <Statistic name="Failed">{countText(runs.filter((run) => run.state === "failed").length)}</Statistic>
        </>
      )}
    </Flex>
  );
}
