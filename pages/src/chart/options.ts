/** The options of a line chart over time, which uPlot draws. */

import uPlot from "uplot";

import { fillOf } from "../states";
import type { Line, Unit } from "../types";

/** The sizes of a chart around its lines, in pixels. */
export const SIZES = { height: 146, top: 8, right: 16, bottom: 20, left: 66 };

const GRID_LINES = 4;
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Return 1, 2 and 5 with these powers of ten. */
function decimals(from: number, to: number) {
  const powers = Array.from({ length: to - from + 1 }, (_, index) => from + index);
  return powers.flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`)));
}

/** The steps between the values of an axis. */
const STEPS: Record<Unit, number[]> = {
  count: decimals(0, 12),
  rate: decimals(-3, 12),
  seconds: [
    ...[1, 2, 5, 10, 20, 30],
    ...[1, 2, 5, 10, 20, 30].map((minutes) => minutes * MINUTE),
    ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR),
    ...decimals(0, 4).map((days) => days * DAY),
  ],
  bytes: Array.from({ length: 50 }, (_, power) => 2 ** power),
};

/** Return the end of an axis: a multiple of a step, at least as large as the largest value. */
export function topOf(unit: Unit, maximum: number | null) {
  const largest = maximum ?? 0;
  const step = STEPS[unit].find((each) => each * GRID_LINES >= largest) ?? largest / GRID_LINES;
  return step * Math.max(1, Math.ceil(largest / step));
}

/** Return the points without a neighbour, which a line could not show. */
export function isolated(values: uPlot.AlignedData[number]) {
  return Array.from(values.keys()).filter(
    (index) =>
      typeof values[index] === "number" &&
      typeof values[index - 1] !== "number" &&
      typeof values[index + 1] !== "number",
  );
}

/** Return a colour for a canvas, which knows no CSS variables. It is read again whenever the chart is drawn. */
function ink(variable: string) {
  const name = variable.slice("var(".length, -1);
  return (plot: uPlot) => getComputedStyle(plot.root).getPropertyValue(name);
}

const clockText = uPlot.fmtDate("{HH}:{mm}");
const dayText = uPlot.fmtDate("{MM}-{DD}");

/** Return a local time as text; the date where a day begins. */
function timeText(there: Date) {
  return there.getHours() === 0 && there.getMinutes() === 0 ? dayText(there) : clockText(there);
}

/**
 * Return the options of a chart.
 *
 * @param font of the texts on the axes
 */
export function optionsOf(
  { lines, unit, format, zone }: { lines: Line[]; unit: Unit; format: (value: number) => string; zone: string },
  font: string,
): uPlot.Options {
  const there = (at: number) => uPlot.tzDate(new Date(at), zone);
  const axis = { font: `11px ${font}`, stroke: ink("var(--chakra-colors-fg-muted)"), ticks: { show: false } };
  return {
    width: 0,
    height: SIZES.height,
    padding: [SIZES.top, SIZES.right, 0, 0],
    ms: 1,
    tzDate: there,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { y: { range: (_plot, _min, max) => [0, topOf(unit, max)] } },
    axes: [
      {
        ...axis,
        size: SIZES.bottom,
        space: 90,
        grid: { show: false },
        values: (_plot, instants) => instants.map((at) => timeText(there(at))),
      },
      {
        ...axis,
        size: SIZES.left,
        gap: 8,
        space: 20,
        grid: { stroke: ink("var(--chakra-colors-border)"), width: 1 },
        incrs: STEPS[unit],
        values: (_plot, values) => values.map(format),
      },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.name,
        stroke: ink(fillOf(line.palette)),
        width: 2,
        dash: line.dashes?.split(" ").map(Number),
        paths: line.isStep ? uPlot.paths.stepped?.({ align: 1 }) : undefined,
        points: { show: false, size: 5, width: 0, filter: (plot: uPlot, index: number) => isolated(plot.data[index]) },
      })),
    ],
  };
}
