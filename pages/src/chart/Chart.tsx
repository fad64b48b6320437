import { Box, Flex, Heading, Span, Text } from "@chakra-ui/react";
import { useState, type KeyboardEvent } from "react";

import { useSize } from "../components/useSize";
import { useZone } from "../format/clock";
import { duration, formatInstant } from "../format/time";
import { fillOf } from "../states";
import { ticksOf } from "../timeline/layout";
import type { Line } from "../types";
import { Legend } from "./Legend";
import { Sample } from "./Sample";
import { alone, gapsOf, nearest, pathOf, roundTop, valueAt, within, xOf, yOf } from "./series";
import { FOOT, HEAD, HEIGHT, MUTED, SIDE, TEXT } from "./sizes";

export function Chart({
  title,
  lines,
  window,
  unit,
  format,
}: {
  title: string;
  lines: Line[];
  window: { since: number; until: number };
  unit: "count" | "seconds" | "bytes";
  format: (value: number) => string;
}) {
  const [size, measure] = useSize();
  const [pointed, setPointed] = useState<number | null>(null);
  const zone = useZone();
  const shown = lines.map((line) => ({ ...line, points: within(line.points, window, line.isStep) }));
  const values = shown.flatMap((line) => line.points.flatMap(({ value }) => (value === null ? [] : [value])));
  const top = roundTop(Math.max(0, ...values), unit);
  const frame = { ...window, width: Math.max(1, size.width - SIDE), height: HEIGHT, top };
  const gaps = shown.some((line) => line.isStep) ? [] : gapsOf(shown[0].points);
  const instants = [...new Set(shown.flatMap((line) => line.points.map(({ at }) => at)))].sort((a, b) => a - b);
  // The chosen point may have left the window.
  const at = pointed !== null && instants.includes(pointed) ? pointed : null;
  const latest = instants.at(-1) ?? null;

  const valuesAt = (instant: number | null) =>
    shown
      .map((line) => {
        const value = instant === null ? null : valueAt(line.points, instant, line.isStep);
        return `${shown.length > 1 ? `${line.name} ` : ""}${value === null ? "unknown" : format(value)}`;
      })
      .join(", ");
  const summary =
    values.length === 0 ? "no data yet" : `${valuesAt(latest)} now, ${format(Math.max(...values))} at most`;
  const unmeasured = gaps.reduce((sum, gap) => sum + gap.until - gap.since, 0) / 1000;
  const note = unmeasured > 0 ? `; no measurements for ${duration(unmeasured)}` : "";

  const onKeyDown = (event: KeyboardEvent<HTMLElement>) => {
    const here = at === null ? instants.length : instants.indexOf(at);

    const steps: Record<string, number> = {
      ArrowLeft: here - 1,
      ArrowRight: here + 1,
      Home: 0,
      End: instants.length - 1,
    };
    const to = steps[event.key];
    if (to === undefined || instants.length === 0) return;
    event.preventDefault();
    setPointed(instants[Math.min(instants.length - 1, Math.max(0, to))]);
  };
  return (
    <Box
      as="figure"
      m={0}
      minW={0}
      borderWidth={1}
      borderColor="border.emphasized"
      borderRadius="md"
      bg="bg"
      p={3}
      data-chart={title}
    >
      <Flex justify="space-between" align="baseline" gap={2} mb={1} wrap="wrap">
        <Heading as="h4" size="xs">
          {title}
        </Heading>
        {lines.length > 1 && (
          <Legend entries={lines.map((line) => ({ label: line.name, sign: <Sample line={line} /> }))} />
        )}
      </Flex>
      <Box
        ref={measure}
        tabIndex={0}
        role="group"
        aria-label={`${title}: ${summary}${note}. Use the arrow keys to move from point to point`}
        position="relative"
        onKeyDown={onKeyDown}
        onBlur={() => setPointed(null)}
        onPointerMove={(event) =>
          setPointed(nearest(instants, event.clientX - event.currentTarget.getBoundingClientRect().left - SIDE, frame))
        }
        onPointerLeave={() => setPointed(null)}
      >
        <svg
          width={SIDE + frame.width}
          height={HEAD + HEIGHT + FOOT}
          aria-hidden
          style={{ display: "block", overflow: "visible" }}
        >
          <g transform={`translate(${SIDE} ${HEAD})`}>
            {gaps.map((gap) => (
              <rect
                key={`gap ${gap.since}`}
                x={xOf(gap.since, frame)}
                y={0}
                width={xOf(gap.until, frame) - xOf(gap.since, frame)}
                height={HEIGHT}
                fill="var(--chakra-colors-bg-muted)"
                data-gap
              />
            ))}
            {[0, top / 2, top].map((value) => (
              <line
                key={value}
                x1={0}
                x2={frame.width}
                y1={yOf(value, frame)}
                y2={yOf(value, frame)}
                stroke="var(--chakra-colors-border)"
              />
            ))}
            {ticksOf(window.since, window.until, frame.width, zone).map((tick) => (
              <text
                key={tick.at}
                x={Math.min(Math.max(tick.x, 16), frame.width - 16)}
                y={HEIGHT + 14}
                textAnchor="middle"
                fill={MUTED}
                style={TEXT}
              >
                {tick.text}
              </text>
            ))}
            {shown.flatMap((line) => [
              <path
                key={line.name}
                d={pathOf(line.points, frame, line.isStep)}
                fill="none"
                stroke={fillOf(line.palette)}
                strokeWidth={2}
                strokeLinejoin="round"
                strokeDasharray={line.dashes}
              />,
              ...alone(line.points).map((point) => (
                <circle
                  key={`${line.name} ${point.at}`}
                  cx={xOf(point.at, frame)}
                  cy={yOf(point.value ?? 0, frame)}
                  r={2}
                  fill={fillOf(line.palette)}
                />
              )),
            ])}
            {[0, top / 2, top].map((value) => (
              <text key={`text ${value}`} x={-8} y={yOf(value, frame) + 4} textAnchor="end" fill={MUTED} style={TEXT}>
                {format(value)}
              </text>
            ))}
            {at !== null && (
              <line
                x1={xOf(at, frame)}
                x2={xOf(at, frame)}
                y1={0}
                y2={HEIGHT}
                stroke="var(--chakra-colors-fg)"
                strokeDasharray="2 2"
              />
            )}
          </g>
        </svg>
      </Box>
      <Text
        as="figcaption"
        fontSize="xs"
        color="fg.muted"
        mt={1}
        minH={5}
        fontVariantNumeric="tabular-nums"
        role="status"
        aria-live={at === null ? "off" : "polite"}
      >
        {at === null ? (
          `${summary}${note}`
        ) : (
          <Span color="fg">{`${formatInstant(new Date(at).toISOString(), zone)}: ${valuesAt(at)}`}</Span>
        )}
      </Text>
    </Box>
  );
}
