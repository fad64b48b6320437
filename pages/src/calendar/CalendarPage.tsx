import { Box, Button, ButtonGroup, Flex, Span, Text } from "@chakra-ui/react";
import { useMemo } from "react";

import { useLive } from "../api/live";
import type { Calendar, SourceCard } from "../api/schema";
import { Choice } from "../chart/Choice";
import { Legend } from "../chart/Legend";
import { ViewChoice } from "../chart/ViewChoice";
import { EmptyState } from "../components/EmptyState";
import { LiveContent } from "../components/LiveContent";
import { ManualLink } from "../components/ManualLink";
import { PageLink } from "../components/PageLink";
import type { PageProps, Place } from "../types";
import { pathOf, sourceApi, withParameters } from "../urls";
import { gridOf, RANGES, rangeOf } from "./cells";
import { Grid } from "./Grid";
import { INTERVALS } from "./intervalStates";
import { ListView } from "./ListView";
import { Sign } from "./Sign";
import { Summary } from "./Summary";

const EVERY_SECONDS = 10;
const DAY = 24 * 3600 * 1000;

/** The page. */
export function CalendarPage({ place, parameters, change, card }: PageProps) {
  const { days, until } = rangeOf(parameters);
  const query = withParameters("", { days: String(days), until });
  const live = useLive<Calendar>(sourceApi(place.connection, place.source, `calendar${query}`), {
    every: EVERY_SECONDS,
  });
  const isList = parameters.get("as") === "list";
  const move = (share: number) => {
    const end = Date.parse(live.response?.until ?? "") + share * days * DAY;
    change({ until: end >= Date.parse(live.response?.as_of ?? "") ? null : new Date(end).toISOString() });
  };
  return (
    <Flex direction="column" flex={1} minH={0} gap={2}>
      <Flex gap={2} wrap="wrap" align="center">
        <Choice
          label="Time range"
          value={String(days)}
          options={RANGES.map((range) => [String(range), `${range} d`] as [string, string])}
          onChange={(range) => change({ days: range })}
        />
        <ButtonGroup size="xs" variant="outline" attached role="group" aria-label="Move in time">
          <Button onClick={() => move(-0.5)} disabled={live.response === null}>
            <Span aria-hidden>‹</Span>
            Earlier
          </Button>
          <Button onClick={() => move(0.5)} disabled={live.response === null || until === null}>
            Later
            <Span aria-hidden>›</Span>
          </Button>
          <Button onClick={() => change({ until: null })} aria-pressed={until === null}>
            Now
          </Button>
        </ButtonGroup>
        <ViewChoice value={isList ? "list" : "picture"} onChange={(value) => change({ as: value })} />
        {live.response !== null && live.response.whole !== place.source && (
          <PageLink to={pathOf({ ...place, source: live.response.whole, page: "calendar" })} fontSize="sm">
            {`All of ${live.response.whole}`}
          </PageLink>
        )}
      </Flex>
      <LiveContent live={live} what="the calendar" connection={place.connection} rows={10}>
        {(response: Calendar) => (
          <Content key="response" calendar={response} place={place} card={card} isList={isList} />
        )}
      </LiveContent>
    </Flex>
  );
}

function Content({
  calendar,
  place,
  card,
  isList,
}: {
  calendar: Calendar;
  place: Place;
  card: SourceCard | null;
  isList: boolean;
}) {
  const grid = useMemo(() => gridOf(calendar, card), [calendar, card]);
  if (calendar.counted === null && calendar.runs.length === 0) {
    return (
      <EmptyState
        title="No intervals in this time range"
        text="Jobs count no intervals of this source, and no run has found anything of one. Choose another time range, or set “completes”."
        kind="empty"
      >
        <ManualLink topic="intervals" />
      </EmptyState>
    );
  }
  const states = new Set(grid.rows.flatMap((row) => row.cells.map((cell) => cell?.state)));
  const isLate = calendar.counted?.known.some((each) => each.late !== null);
  return (
    <>
      <Summary calendar={calendar} card={card} />
      {(!calendar.complete || grid.isCut) && (
        <Text fontSize="sm" color="fg.muted">
          {grid.isCut
            ? "Only the latest intervals of this time range are shown."
            : "Not every run could be examined. Choose a shorter time range."}
        </Text>
      )}
      {isList ? (
        <ListView grid={grid} place={place} card={card} />
      ) : (
        <>
          <Legend
            entries={[
              ...Object.entries(INTERVALS)
                .filter(([name]) => states.has(name as keyof typeof INTERVALS))
                .map(([name, { label }]) => ({
                  label,
                  sign: <Sign state={name as keyof typeof INTERVALS} w="20px" h="18px" />,
                })),
              ...(isLate
                ? [{ label: "with late records", sign: <Sign state="complete" isLate w="20px" h="18px" /> }]
                : []),
            ]}
          />
          <Box flex={1} minH={0} display="flex" flexDirection="column">
            <Grid grid={grid} place={place} card={card} isExact={calendar.counted?.is_exact ?? true} />
          </Box>
        </>
      )}
    </>
  );
}
