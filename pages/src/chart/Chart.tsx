import { Box, Flex, Heading, Span, Text } from "@chakra-ui/react";
import { useMemo, useState, type KeyboardEvent } from "react";

import { useZone } from "../format/clock";
import { duration, formatInstant } from "../format/time";
import { fillOf } from "../states";
import type { Line, Unit } from "../types";
import { Legend } from "./Legend";
import { Plot } from "./Plot";
import { gapsOf, nearest, within } from "./series";

/** A line chart over time. The values at the pointer, or at the point chosen with the arrow keys, are shown below it. */
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
  unit: Unit;
  format: (value: number) => string;
}) {
  const [pointed, setPointed] = useState<number | null>(null);
  const zone = useZone();
  const shown = useMemo(
    () => lines.map((line) => ({ ...line, points: within(line.points, window, line.isStep) })),
    [lines, window],
  );
  const values = shown.flatMap((line) => line.points.flatMap(({ value }) => (value === null ? [] : [value])));
  const instants = [...new Set(shown.flatMap((line) => line.points.map(({ at }) => at)))].sort((a, b) => a - b);
  // The chosen point may have left the window.
  const at = pointed !== null && instants.includes(pointed) ? pointed : null;

  const valuesAt = (instant: number | null) =>
    shown
      .map((line) => {
        const value = line.points.find((point) => point.at === instant)?.value ?? null;
        return `${shown.length > 1 ? `${line.name} ` : ""}${value === null ? "unknown" : format(value)}`;
      })
      .join(", ");
  const summary =
    values.length === 0
      ? "no data yet"
      : `${valuesAt(instants.at(-1) ?? null)} now, ${format(Math.max(...values))} at most`;
  const gaps = shown[0].isStep ? [] : gapsOf(shown[0].points);
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
        <Heading as="h3" size="xs">
          {title}
        </Heading>
        {lines.length > 1 && (
          <Legend entries={lines.map((line) => ({ label: line.name, sign: <Sample line={line} /> }))} />
        )}
      </Flex>
      <Box
        tabIndex={0}
        role="group"
        aria-label={`${title}: ${summary}${note}. Use the arrow keys to move from point to point`}
        onKeyDown={onKeyDown}
        onBlur={() => setPointed(null)}
      >
        <Plot
          key={zone}
          lines={shown}
          gaps={gaps}
          window={window}
          unit={unit}
          format={format}
          zone={zone}
          at={at}
          onPoint={(instant) => setPointed(nearest(instants, instant))}
        />
      </Box>
      <Box as="figcaption" fontSize="xs" color="fg.muted" mt={1} minH={5} fontVariantNumeric="tabular-nums">
        <Text role="status" aria-live={at === null ? "off" : "polite"}>
          {at === null ? (
            `${summary}${note}`
          ) : (
            <Span color="fg">{`${formatInstant(new Date(at).toISOString(), zone)}: ${valuesAt(at)}`}</Span>
          )}
        </Text>
      </Box>
    </Box>
  );
}

/** A short sample of a line. Its dashes distinguish it for users who do not see its colour. */
function Sample({ line }: { line: Line }) {
  return (
    <svg width={22} height={8} aria-hidden>
      <path d="M0 4H22" fill="none" stroke={fillOf(line.palette)} strokeWidth={2} strokeDasharray={line.dashes} />
    </svg>
  );
}
