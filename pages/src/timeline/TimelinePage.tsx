import { Box, Button, ButtonGroup, Flex, Input, Span, Text } from "@chakra-ui/react";
import { Fragment, useCallback } from "react";

import { clock } from "../api/request";
import { Choice } from "../chart/Choice";
import { Legend } from "../chart/Legend";
import { ViewChoice } from "../chart/ViewChoice";
import { EmptyState } from "../components/EmptyState";
import { Icon } from "../components/Icon";
import { LiveContent } from "../components/LiveContent";
import { useTypedText } from "../components/useTypedText";
import { useZone } from "../format/clock";
import { plural } from "../format/text";
import { formatInstant } from "../format/time";
import { ENDS } from "../states";
import type { PageProps } from "../types";
import { Chart } from "./Chart";
import { ListView } from "./ListView";
import { windowOf, WINDOWS } from "./layout";
import { useWindow } from "./useWindow";

/** The page. */
export function TimelinePage({ place, parameters, change, search }: PageProps) {
  const zone = useZone();
  const window = windowOf(parameters, clock.now());
  const live = useWindow(place, parameters, window.isLive);
  const isList = parameters.get("as") === "list";
  const searched = parameters.get("search") ?? "";
  const [text, setText] = useTypedText(searched, (typed) => change({ search: typed }));
  const onOpen = useCallback((key: string) => change({ partition: key }, { keep: true }), [change]);

  const move = (share: number) => {
    const until = window.until + share * WINDOWS[window.name] * 1000;
    change({ until: until >= clock.now() ? null : new Date(until).toISOString() });
  };
  return (
    <Flex direction="column" flex={1} minH={0} gap={2}>
      <Flex gap={2} wrap="wrap" align="center">
        <Input
          size="sm"
          type="search"
          w={{ base: "full", sm: "220px" }}
          aria-label="Key contains"
          placeholder="Key contains"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <Choice
          label="Time range"
          value={window.name}
          options={Object.keys(WINDOWS).map((name) => [name, name] as [string, string])}
          onChange={(name) => change({ window: name === "1h" ? null : name })}
        />
        <ButtonGroup size="xs" variant="outline" attached role="group" aria-label="Move in time">
          <Button onClick={() => move(-0.5)}>
            <Span aria-hidden>‹</Span>
            Earlier
          </Button>
          <Button onClick={() => move(0.5)} disabled={window.isLive}>
            Later
            <Span aria-hidden>›</Span>
          </Button>
          <Button onClick={() => change({ until: null })} aria-pressed={window.isLive}>
            Now
          </Button>
        </ButtonGroup>
        <ViewChoice value={isList ? "list" : "picture"} onChange={(value) => change({ as: value })} />
        <Text fontSize="xs" color="fg.muted" ms={{ xl: "auto" }}>
          {window.isLive
            ? `last ${window.name}`
            : `${formatInstant(new Date(window.since).toISOString(), zone)} to ${formatInstant(new Date(window.until).toISOString(), zone)}`}
          {` · ${zone}`}
        </Text>
      </Flex>
      <LiveContent live={live} what="the timeline" connection={place.connection} rows={10}>
        {(response) => (
          <Fragment key="response">
            {!response.has_history && (
              <Flex gap={2} align="center" fontSize="sm" color="fg.muted">
                <Icon name="alert" />
                No history is kept: only current leases are shown. Set history_days of the connection above 0.
              </Flex>
            )}
            {!response.complete && (
              <Text fontSize="sm" color="fg.muted">
                {`Incomplete: only ${plural(response.partitions.length, "partition")} shown. Search, or choose a shorter time range.`}
              </Text>
            )}
            {response.partitions.length === 0 ? (
              <EmptyState
                title="No leases in this time range"
                text={
                  searched
                    ? `No partition with “${searched}” in its key had an owner.`
                    : "Choose a longer or earlier time range."
                }
                kind="empty"
              />
            ) : isList ? (
              <ListView response={response} search={search} />
            ) : (
              <>
                <Legend
                  entries={[
                    {
                      label: "each colour is a worker",
                      sign: (
                        <Flex as="span" gap="2px">
                          {["blue", "teal", "pink"].map((palette) => (
                            <Box
                              as="span"
                              key={palette}
                              w="10px"
                              h="10px"
                              borderRadius="2px"
                              bg={`${palette}.muted`}
                              borderWidth={1}
                              borderColor={`${palette}.solid`}
                            />
                          ))}
                        </Flex>
                      ),
                    },
                    { label: `${ENDS.expired.label} or ${ENDS["taken over"].label}`, palette: ENDS.expired.palette },
                    { label: `${ENDS.failed.label} or ${ENDS.parked.label}`, palette: ENDS.failed.palette },
                    ENDS.completed,
                    ENDS.released,
                  ]}
                />
                <Box flex={1} minH={0} display="flex" flexDirection="column">
                  <Chart response={response} onOpen={onOpen} />
                </Box>
              </>
            )}
          </Fragment>
        )}
      </LiveContent>
    </Flex>
  );
}
