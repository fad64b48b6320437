import { Box, Flex } from "@chakra-ui/react";
import { useCallback, useMemo, useState, type KeyboardEvent } from "react";
import { flushSync } from "react-dom";

import type { Timeline } from "../api/schema";
import { PointerDetails } from "../chart/PointerDetails";
import { useSize } from "../components/useSize";
import { useZone } from "../format/clock";
import { useRowWindow } from "../table/useRowWindow";
import { About } from "./About";
import { Lane } from "./Lane";
import { firstBar, HEAD, LABEL, nextBar, pointedBar, TEXT } from "./bars";
import { barsOf, ticksOf } from "./layout";

/** @param props the API's response for the timeline */
export function Chart({ response, onOpen }: { response: Timeline; onOpen: (key: string) => void }) {
  const zone = useZone();
  const [size, attach, scroller] = useSize();
  const [pointed, setPointed] = useState<string | null>(null);
  const [active, setActive] = useState("0 0");
  const isNarrow = size.width < 640;
  const laneHeight = isNarrow ? 46 : 28;
  const labelWidth = isNarrow ? 0 : LABEL;
  const chart = Math.max(100, size.width - labelWidth);
  // Lanes are drawn again with each response, and not while scrolling or pointing.
  const span = useMemo(
    () => ({ since: Date.parse(response.since), until: Date.parse(response.until), now: Date.parse(response.as_of) }),
    [response],
  );
  const ticks = useMemo(
    () => ticksOf(span.since, span.until, chart, zone, isNarrow ? 64 : 90),
    [span, chart, zone, isNarrow],
  );
  const lines = response.partitions;
  const keys = useMemo(() => lines.map((line) => line.partition_key), [lines]);
  const onPoint = useCallback((name: string, isFocus: boolean | undefined) => {
    setPointed(name);
    if (isFocus) setActive(name);
  }, []);

  const barsAt = (at: number) => barsOf(lines[at].holdings, { ...span, width: chart });
  const [activeLane, activeBar] = active.split(" ").map(Number);
  const isThere = activeLane < lines.length && activeBar < barsAt(activeLane).length;
  const [lane, place] = isThere ? [activeLane, activeBar] : firstBar(lines, barsAt);
  const lanes = useRowWindow({ scroller, keys, rowHeight: laneHeight, head: HEAD, kept: lane });

  const onKeyDown = (event: KeyboardEvent<HTMLElement>) => {
    const bar = (event.target as Element).getAttribute("data-bar");
    if (bar === null) return;
    const [lane, index] = bar.split(" ").map(Number);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onOpen(lines[lane].partition_key);
      return;
    }
    const next = nextBar(event.key, lane, index, lines.length, barsAt);
    if (next === null) return;
    event.preventDefault();
    lanes.scrollToIndex(next[0]);
    // The lane with the active bar is drawn, wherever it is.
    flushSync(() => setActive(next.join(" ")));
    scroller.current?.querySelector<SVGElement>(`[data-bar="${next.join(" ")}"]`)?.focus({ preventScroll: true });
  };
  const shown = pointed === null ? null : pointedBar(pointed, lines, barsAt);

  return (
    <>
      <Box
        ref={attach}
        flex={1}
        minH={{ base: "420px", md: "260px" }}
        overflowY="auto"
        overflowX="hidden"
        borderWidth={1}
        borderColor="border.emphasized"
        borderTopRadius="md"
        bg="bg"
        onKeyDown={onKeyDown}
        onPointerLeave={() => setPointed(null)}
        data-timeline={lines.length}
      >
        <Flex
          position="sticky"
          top={0}
          zIndex={2}
          bg="bg.muted"
          h={`${HEAD}px`}
          borderBottomWidth={1}
          borderColor="border.emphasized"
          aria-hidden
        >
          {labelWidth > 0 && (
            <Box
              style={{ width: labelWidth }}
              px={2}
              fontSize="xs"
              color="fg.muted"
              fontWeight="semibold"
              lineHeight={`${HEAD}px`}
            >
              Partition
            </Box>
          )}
          <svg width={chart} height={HEAD - 1}>
            {ticks.map((tick) => (
              <g key={tick.at}>
                <line x1={tick.x} x2={tick.x} y1={18} y2={HEAD} stroke="var(--chakra-colors-fg-muted)" />
                <text
                  x={tick.x + (tick.x < 24 ? 2 : tick.x > chart - 24 ? -2 : 0)}
                  y={14}
                  style={TEXT}
                  textAnchor={tick.x < 24 ? "start" : tick.x > chart - 24 ? "end" : "middle"}
                  fill="var(--chakra-colors-fg-muted)"
                >
                  {tick.text}
                </text>
              </g>
            ))}
          </svg>
        </Flex>
        <Box position="relative" style={{ height: lanes.getTotalSize() }}>
          {lanes.getVirtualItems().map(({ index: at, start }) => (
            <Lane
              key={keys[at]}
              top={start - HEAD}
              line={lines[at]}
              at={at}
              laneHeight={laneHeight}
              chart={chart}
              labelWidth={labelWidth}
              ticks={ticks}
              window={span}
              isNarrow={isNarrow}
              active={at === lane ? place : -1}
              zone={zone}
              onPoint={onPoint}
              onOpen={onOpen}
            />
          ))}
        </Box>
      </Box>
      <PointerDetails hint="Hover over a bar, or use the arrow keys. Press Enter to open its partition.">
        {shown && <About line={shown.line} bar={shown.bar} />}
      </PointerDetails>
    </>
  );
}
