/** The timeline as a chart: a lane for each partition, a bar for each time that an owner held it. */

import { Badge, Box, Flex, Span, Stack, Text, chakra } from "@chakra-ui/react";
import { type KeyboardEvent, memo, useCallback, useMemo, useRef, useState } from "react";

import { fittingText, PointerDetails } from "./chart_controls";
import { useNow, useZone } from "./clock";
import { useSize } from "./element_size";
import { areaOf, ENDS, fillOf, stateOf } from "./states";
import { ownerLabel } from "./text";
import { duration, formatInstant } from "./time";
import { barsOf, isProblem, ownerPalette, ticksOf } from "./timeline_layout";
import { topToShow, visibleRows } from "./virtual_rows";
import { Instant, Shortened } from "./widgets";
import type { HoldingFacts, PartitionLine, Timeline } from "./schema";
import type { Bar } from "./types";

const HEAD = 26;
const LABEL = 230;
const BAR = 18;
/** A style, as Airflow's own styles override attributes. */
const TEXT = { fontSize: "11px", pointerEvents: "none" } as const;

function ariaLabelOf(partitionKey: string, { holding }: { holding: HoldingFacts }, zone: string) {
  const began = holding.began_at === null ? "an unknown time" : formatInstant(holding.began_at, zone);
  const ended = holding.ended_at === null ? "now" : formatInstant(holding.ended_at, zone);
  return `${partitionKey}, held by ${ownerLabel(holding.owner) || "an unknown owner"} from ${began} to ${ended}, ${stateOf(holding.end, ENDS).label}`;
}

type DrawnBar = {
  partitionKey: string;
  bar: Bar;
  y: number;
  isActive: boolean;
  zone: string;
  name: string;
  onPoint: (name: string, isFocus?: boolean) => void;
  onOpen: (key: string) => void;
};

const BarShape = memo(function BarShape({ partitionKey, bar, y, isActive, zone, name, onPoint, onOpen }: DrawnBar) {
  const { holding, x, width } = bar;
  const colours = areaOf(ownerPalette(holding.owner?.name ?? ""));
  const end = stateOf(holding.end, ENDS);
  const text = fittingText(ownerLabel(holding.owner), width - 12, 6.2);
  const cap = Math.min(4, width);
  const shape = (
    <g
      role="button"
      tabIndex={isActive ? 0 : -1}
      aria-label={ariaLabelOf(partitionKey, bar, zone)}
      data-bar={name}
      data-end={holding.end}
      className="coordination-shape"
      style={{ cursor: "pointer" }}
      onPointerEnter={() => onPoint(name)}
      onFocus={() => onPoint(name, true)}
      onClick={() => onOpen(partitionKey)}
    >
      <rect
        x={x}
        y={y}
        width={width}
        height={BAR}
        rx={Math.min(3, width / 2)}
        fill={width < 8 ? colours.stroke : colours.fill}
        stroke={colours.stroke}
        strokeWidth={width < 8 ? 0 : 1}
      />
      {!bar.endsAfter && holding.ended_at !== null && (
        <rect x={x + width - cap} y={y} width={cap} height={BAR} fill={fillOf(end.palette)} />
      )}
      {isProblem(holding.end) && !bar.endsAfter && (
        <path
          d={`M${x + width - 5} ${y - 3} l5 -0 l5 0 l-5 6 z`}
          fill={fillOf(end.palette)}
          stroke="var(--chakra-colors-bg)"
          strokeWidth={1}
        />
      )}
    </g>
  );
  // Beside the button, not in it: the label of the button contains it.
  return (
    <>
      {shape}
      {text !== "" && (
        <text x={x + 7} y={y + 13} fill={colours.text} aria-hidden style={TEXT}>
          {text}
        </text>
      )}
    </>
  );
});

type DrawnLane = {
  line: PartitionLine;
  at: number;
  laneHeight: number;
  chart: number;
  labelWidth: number;
  ticks: { at: number; x: number; text: string }[];
  window: { since: number; until: number; now: number };
  isNarrow: boolean;
  active: number;
  zone: string;
  onPoint: (name: string, isFocus?: boolean) => void;
  onOpen: (key: string) => void;
};

const Lane = memo(function Lane({
  line,
  at,
  laneHeight,
  chart,
  labelWidth,
  ticks,
  window,
  isNarrow,
  active,
  zone,
  onPoint,
  onOpen,
}: DrawnLane) {
  const bars = barsOf(line.holdings, { ...window, width: chart });
  const y = (isNarrow ? 20 : 0) + (laneHeight - (isNarrow ? 20 : 0) - BAR) / 2;
  return (
    <Box
      position="absolute"
      insetInline={0}
      display="flex"
      flexDirection={isNarrow ? "column" : "row"}
      borderBottomWidth={1}
      borderColor="border"
      style={{ top: at * laneHeight, height: laneHeight }}
      data-lane={line.partition_key}
      data-key={line.partition_key}
    >
      <Box
        style={{ width: isNarrow ? chart : labelWidth, height: isNarrow ? 20 : laneHeight }}
        flexShrink={0}
        display="flex"
        alignItems="center"
        px={2}
        minW={0}
        fontSize="xs"
        position={isNarrow ? "absolute" : "static"}
        zIndex={1}
      >
        <chakra.button
          type="button"
          data-opens
          aria-haspopup="dialog"
          aria-label={line.partition_key}
          maxW="full"
          minW={0}
          display="flex"
          cursor="pointer"
          _hover={{ textDecoration: "underline" }}
          onClick={() => onOpen(line.partition_key)}
        >
          <Shortened text={line.partition_key} tail={20} />
        </chakra.button>
      </Box>
      <svg
        width={chart}
        height={laneHeight}
        style={{ flexShrink: 0, display: "block" }}
        role="group"
        aria-label={line.partition_key}
      >
        {ticks.map((tick) => (
          <line key={tick.at} x1={tick.x} x2={tick.x} y1={0} y2={laneHeight} stroke="var(--chakra-colors-border)" />
        ))}
        {bars.map((bar, index) => {
          const name = `${at} ${index}`;
          return (
            <BarShape
              key={name}
              name={name}
              partitionKey={line.partition_key}
              bar={bar}
              y={y}
              isActive={index === active}
              zone={zone}
              onPoint={onPoint}
              onOpen={onOpen}
            />
          );
        })}
      </svg>
    </Box>
  );
});

/** @param props the API's response for the timeline */
export function Chart({ response, onOpen }: { response: Timeline; onOpen: (key: string) => void }) {
  const zone = useZone();
  const [size, measure] = useSize();
  const scroller = useRef<HTMLElement>(null);
  const [top, setTop] = useState(0);
  const [pointed, setPointed] = useState<string | null>(null);
  const [active, setActive] = useState("0 0");
  const attach = useCallback((element: HTMLElement | null) => {
    scroller.current = element;
    measure(element);
  }, []);
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
  const sight = visibleRows({ top, height: size.height - HEAD, rowHeight: laneHeight, count: lines.length });
  const onPoint = useCallback((name: string, isFocus: boolean | undefined) => {
    setPointed(name);
    if (isFocus) setActive(name);
  }, []);

  const barsAt = (at: number) => barsOf(lines[at].holdings, { ...span, width: chart });
  const [activeLane, activeBar] = active.split(" ").map(Number);
  const isThere = activeLane < lines.length && activeBar < barsAt(activeLane).length;
  const [lane, place] = isThere ? [activeLane, activeBar] : firstBar(lines, barsAt);

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
    const element = scroller.current;
    if (element === null) return;
    const wanted = topToShow({
      index: next[0],
      top: element.scrollTop,
      height: size.height - HEAD,
      rowHeight: laneHeight,
    });
    if (wanted !== null) element.scrollTop = wanted;
    setActive(next.join(" "));
    requestAnimationFrame(() =>
      requestAnimationFrame(() =>
        (element.querySelector(`[data-bar="${next.join(" ")}"]`) as HTMLElement | null)?.focus({
          preventScroll: true,
        }),
      ),
    );
  };
  const shown = pointed === null ? null : pointedBar(pointed, lines, barsAt);

  const drawn: number[] = [];
  for (let at = sight.first; at < sight.end; at += 1) drawn.push(at);
  if (lane >= 0 && (lane < sight.first || lane >= sight.end)) drawn.push(lane);
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
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
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
        <Box position="relative" style={{ height: lines.length * laneHeight }}>
          {drawn.map((at) => (
            <Lane
              key={lines[at].partition_key}
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
      <PointerDetails hint="Point at a bar, or use the arrow keys. Press Enter to open the partition.">
        {shown && <About line={shown.line} bar={shown.bar} />}
      </PointerDetails>
    </>
  );
}

function firstBar(lines: PartitionLine[], barsAt: (at: number) => Bar[]) {
  return [lines.findIndex((_, index) => barsAt(index).length > 0), 0];
}

function pointedBar(name: string, lines: PartitionLine[], barsAt: (at: number) => Bar[]) {
  const [at, index] = name.split(" ").map(Number);
  const bar = at < lines.length ? barsAt(at)[index] : undefined;
  return bar === undefined ? null : { line: lines[at], bar };
}

function nextBar(key: string, lane: number, index: number, count: number, barsAt: (at: number) => Bar[]) {
  const bars = barsAt(lane);
  if (key === "ArrowRight") return index + 1 < bars.length ? [lane, index + 1] : [lane, index];
  if (key === "ArrowLeft") return [lane, Math.max(0, index - 1)];
  if (key !== "ArrowUp" && key !== "ArrowDown") return null;
  const step = key === "ArrowUp" ? -1 : 1;
  for (let at = lane + step; at >= 0 && at < count; at += step) {
    const others = barsAt(at);
    if (others.length === 0) continue;
    const middle = bars[index] === undefined ? 0 : bars[index].x + bars[index].width / 2;
    let best = 0;
    others.forEach((other, place) => {
      if (Math.abs(other.x + other.width / 2 - middle) < Math.abs(others[best].x + others[best].width / 2 - middle))
        best = place;
    });
    return [at, best];
  }
  return [lane, index];
}

/** The details of a holding: its owner, its duration, its start and its end. */
function About({ line, bar }: { line: PartitionLine; bar: Bar }) {
  const now = useNow();
  const { holding } = bar;
  const end = stateOf(holding.end, ENDS);
  const seconds =
    holding.began_at === null
      ? null
      : ((holding.ended_at === null ? now : Date.parse(holding.ended_at)) - Date.parse(holding.began_at)) / 1000;
  return (
    <Stack gap={1}>
      <Flex gap={2} align="center" wrap="wrap" minW={0}>
        <Text fontWeight="semibold" title={holding.owner?.name} overflowWrap="anywhere" minW={0}>
          {ownerLabel(holding.owner)}
        </Text>
        <Badge colorPalette={end.palette} variant="subtle">
          {end.label}
        </Badge>
        {seconds !== null && <Text fontVariantNumeric="tabular-nums">{duration(seconds)}</Text>}
        <Text color="fg.muted" minW={0} truncate>
          {line.partition_key}
        </Text>
      </Flex>
      <Flex gap={1} fontSize="xs" color="fg.muted" wrap="wrap">
        {holding.began_at === null ? (
          "held since before the start of the history"
        ) : (
          <>
            {holding.begin === "unknown" ? "held since" : holding.begin}
            <Instant instant={holding.began_at} withAge={false} />
          </>
        )}
        {holding.ended_at !== null && (
          <>
            until
            <Instant instant={holding.ended_at} withAge={false} />
          </>
        )}
        {holding.reason && <Span overflowWrap="anywhere">{`· ${holding.reason}`}</Span>}
        {holding.by && `· by ${holding.by}`}
      </Flex>
    </Stack>
  );
}
