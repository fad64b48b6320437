/** The timeline as a chart: a lane for each partition, a bar for each time that an owner held it. */

import type { HoldingFacts, PartitionLine } from "../api/schema";
import { ownerLabel } from "../format/text";
import { formatInstant } from "../format/time";
import { ENDS, stateOf } from "../states";
import type { Bar } from "../types";

export const HEAD = 26;
export const LABEL = 230;
export const BAR = 18;
/** A style, as Airflow's own styles override attributes. */
export const TEXT = { fontSize: "11px", pointerEvents: "none" } as const;

export function ariaLabelOf(partitionKey: string, { holding }: { holding: HoldingFacts }, zone: string) {
  const began = holding.began_at === null ? "an unknown time" : formatInstant(holding.began_at, zone);
  const ended = holding.ended_at === null ? "now" : formatInstant(holding.ended_at, zone);
  return `${partitionKey}, held by ${ownerLabel(holding.owner) || "an unknown owner"} from ${began} to ${ended}, ${stateOf(holding.end, ENDS).label}`;
}

export type DrawnBar = {
  partitionKey: string;
  bar: Bar;
  y: number;
  isActive: boolean;
  zone: string;
  name: string;
  onPoint: (name: string, isFocus?: boolean) => void;
  onOpen: (key: string) => void;
};

export type DrawnLane = {
  line: PartitionLine;
  at: number;
  top: number;
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

export function firstBar(lines: PartitionLine[], barsAt: (at: number) => Bar[]) {
  return [lines.findIndex((_, index) => barsAt(index).length > 0), 0];
}

export function pointedBar(name: string, lines: PartitionLine[], barsAt: (at: number) => Bar[]) {
  const [at, index] = name.split(" ").map(Number);
  const bar = at < lines.length ? barsAt(at)[index] : undefined;
  return bar === undefined ? null : { line: lines[at], bar };
}

export function nextBar(key: string, lane: number, index: number, count: number, barsAt: (at: number) => Bar[]) {
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
