/**
 * The layout of the calendar: a cell for each interval, and what is known of it.
 *
 * Days are those of UTC, as intervals begin at midnight UTC.
 */

import type { Calendar, Hold, IntervalRun, KnownInterval, SourceCard } from "../api/schema";

const MINUTE = 60 * 1000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const WEEK = 7 * DAY;
/** A Monday. */
const MONDAY = Date.UTC(1970, 0, 5);
/** The lengths of cells. Each divides a day. */
const LENGTHS = [1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1440].map((minutes) => minutes * MINUTE);
const ROWS = [DAY, 6 * HOUR, HOUR];
const MAX_COLUMNS = 48;
const MAX_CELLS = 1500;
const WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/** The time ranges that can be chosen, in days. */
export const RANGES = [7, 14, 31, 62];
const DEFAULT_RANGE = 14;

export type IntervalState =
  "failed" | "running" | "reporting" | "due" | "waiting" | "unknown" | "complete" | "none" | "ahead";

/** What is known of an interval. `known` is what its source counts, and `held` are the partitions that hold it. */
export type Cell = {
  start: number;
  end: number;
  state: IntervalState;
  known: KnownInterval | null;
  held: Hold[];
  runs: IntervalRun[];
};

/** A row of the grid; null where the window has no interval. */
export type CalendarRow = { start: number; title: string; cells: (Cell | null)[] };
export type CalendarGrid = { length: number; columns: string[]; rows: CalendarRow[]; since: number; isCut: boolean };

/** The states from the one that matters most to the one that matters least. */
const BY_URGENCY: IntervalState[] = [
  "failed",
  "running",
  "reporting",
  "due",
  "waiting",
  "unknown",
  "complete",
  "none",
  "ahead",
];

/** Return the number of days and the end of the window of a URL; the end is null for now. */
export function rangeOf(parameters: URLSearchParams): { days: number; until: string | null } {
  const asked = Number(parameters.get("days"));
  const until = Date.parse(parameters.get("until") ?? "");
  return {
    days: RANGES.includes(asked) ? asked : DEFAULT_RANGE,
    until: Number.isNaN(until) ? null : new Date(until).toISOString(),
  };
}

/** Return the calendar as rows of cells, the latest row first. */
export function gridOf(calendar: Calendar, card: SourceCard | null): CalendarGrid {
  const length = lengthOf(calendar);
  const [until, now] = [Date.parse(calendar.until), Date.parse(calendar.as_of)];
  const offset = calendar.counted === null ? commonest(calendar.runs.map((run) => Date.parse(run.start) % length)) : 0;
  const asked = Date.parse(calendar.since);
  const rowLength = rowLengthOf(length);
  const since = Math.max(asked, Math.floor((until - MAX_CELLS * length) / rowLength) * rowLength);
  const runs = runsByCell(calendar.runs, since + offset, until, length);
  const known = new Map((calendar.counted?.known ?? []).map((each) => [Date.parse(each.start), each]));
  const cells = new Map<number, Cell>();
  for (let start = since + offset; start < until; start += length) {
    const end = start + length;
    const cell = {
      start,
      end,
      known: known.get(start) ?? null,
      held: holdsOf(end, card),
      runs: runs.get(start) ?? [],
    };
    cells.set(start, withState(cell, calendar, card, now));
  }
  const rows = [];
  const first = rowLength === WEEK ? MONDAY + Math.floor((since - MONDAY) / WEEK) * WEEK : since;
  for (let start = first + offset; start < until; start += rowLength) {
    const starts = Array.from({ length: rowLength / length }, (_, index) => start + index * length);
    rows.push({ start, title: rowTitle(start, rowLength), cells: starts.map((each) => cells.get(each) ?? null) });
  }
  const columns = rows.length === 0 ? [] : columnsOf(rows[0].start, length, rowLength);
  return { length, columns, rows: rows.reverse(), since, isCut: since > asked };
}

/** Return the length of cells in milliseconds: of the intervals that are counted, or of most runs. */
function lengthOf({ counted, runs }: Calendar) {
  const every =
    counted === null
      ? commonest(runs.map((run) => Date.parse(run.end) - Date.parse(run.start))) || HOUR
      : counted.every * 1000;
  return LENGTHS.findLast((length) => length <= every && (counted === null || every % length === 0)) ?? MINUTE;
}

function commonest(values: number[]) {
  const times = new Map<number, number>();
  for (const value of values) times.set(value, (times.get(value) ?? 0) + 1);
  return [...times].reduce((best, each) => (each[1] > best[1] ? each : best), [0, 0])[0];
}

function rowLengthOf(length: number) {
  if (length === DAY) return WEEK;
  return ROWS.find((each) => each / length <= MAX_COLUMNS && each % length === 0) ?? HOUR;
}

function rowTitle(start: number, rowLength: number) {
  const text = new Date(start).toISOString();
  if (rowLength === WEEK) return text.slice(0, 10);
  const day = `${WEEKDAYS[Math.floor((start - MONDAY) / DAY) % 7]} ${text.slice(0, 10)}`;
  return rowLength === DAY ? day : `${day} ${text.slice(11, 16)}`;
}

function columnsOf(start: number, length: number, rowLength: number) {
  return Array.from({ length: rowLength / length }, (_, index) => {
    if (rowLength === WEEK) return WEEKDAYS[index];
    const minutes = Math.round((index * length + (rowLength === DAY ? start % DAY : 0)) / MINUTE);
    const [hour, minute] = [Math.floor(minutes / 60) % 24, minutes % 60].map((each) => String(each).padStart(2, "0"));
    if (rowLength === HOUR) return `:${minute}`;
    return rowLength === DAY ? (minute === "00" ? hour : `${hour}:${minute}`) : `+${hour}:${minute}`;
  });
}

/** Return the runs that overlap each cell. */
function runsByCell(runs: IntervalRun[], first: number, until: number, length: number) {
  const found = new Map<number, IntervalRun[]>();
  for (const run of runs) {
    const [start, end] = [Date.parse(run.start), Math.min(Date.parse(run.end), until)];
    for (let at = first + Math.max(0, Math.floor((start - first) / length)) * length; at < end; at += length) {
      found.set(at, [...(found.get(at) ?? []), run]);
    }
  }
  return found;
}

type Stateless = Omit<Cell, "state">;

function withState(cell: Stateless, calendar: Calendar, card: SourceCard | null, now: number): Cell {
  const uncounted = cell.start >= now ? "ahead" : "none";
  const own = calendar.counted === null ? uncounted : countedState(cell, calendar, card, now);
  const states: IntervalState[] = [own, ...cell.runs.map((run) => run.state ?? "unknown")];
  return { ...cell, held: own === "failed" || own === "running" ? cell.held : [], state: worst(states) };
}

function worst(states: IntervalState[]) {
  return BY_URGENCY.find((state) => states.includes(state)) ?? "none";
}

/** Return what holds the watermark before the end of an interval, as far as the source's status lists it. */
function holdsOf(end: number, card: SourceCard | null): Hold[] {
  return (card?.watermark?.held_by ?? []).filter((hold) => hold.until === null || Date.parse(hold.until) < end);
}

/** Return whether a partition waits for a person, or fails. */
export function isStuck(hold: Hold, card: SourceCard | null) {
  return hold.is_parked || (card?.failing_partitions ?? []).some((each) => each.partition_key === hold.name);
}

function countedState(
  { start, end, known, held }: Stateless,
  { counted }: Calendar,
  card: SourceCard | null,
  now: number,
): IntervalState {
  if (start >= now) return "ahead";
  if (counted === null || counted.start === null || start < Date.parse(counted.start)) return "none";
  if (known?.reported_by) return "reporting";
  if (counted.next !== null && start < Date.parse(counted.next)) return "complete";
  const watermark = card?.watermark ?? null;
  if (watermark?.is_finished)
    return counted.known.some((each) => each.counts && Date.parse(each.start) >= start) ? "due" : "none";
  if (watermark?.until && Date.parse(watermark.until) >= end) return "due";
  if (held.some((hold) => isStuck(hold, card))) return "failed";
  return "running";
}

/**
 * Return the cell that a key leads to, as row and column; null if it leads nowhere.
 *
 * @param at the row and the column of the cell with the focus
 */
export function nextCell(key: string, rows: CalendarRow[], at: [number, number]): [number, number] | null {
  const [row, column] = at;
  const isThere = (there: [number, number]) => Boolean(rows[there[0]]?.cells[there[1]]);
  const along = (rowStep: number, columnStep: number): [number, number] | null => {
    const there: [number, number] = [row + rowStep, column + columnStep];
    return isThere(there) ? there : null;
  };
  const inRow = (cells: [number, number][]) => cells.find(isThere) ?? null;
  const columns = (rows[row]?.cells ?? []).map((_, index): [number, number] => [row, index]);
  switch (key) {
    case "ArrowLeft":
      return along(0, -1);
    case "ArrowRight":
      return along(0, 1);
    case "ArrowUp":
      return along(-1, 0);
    case "ArrowDown":
      return along(1, 0);
    case "Home":
      return inRow(columns);
    case "End":
      return inRow(columns.toReversed());
    case "PageUp":
      return inRow(rows.map((_, index): [number, number] => [index, column]));
    case "PageDown":
      return inRow(rows.map((_, index): [number, number] => [index, column]).toReversed());
    default:
      return null;
  }
}

/** Return the cell that gets the focus first: the first one in trouble, or else the latest one that has begun. */
export function firstCell(rows: CalendarRow[]): [number, number] {
  for (const wanted of [["failed"], ["running", "reporting", "due", "waiting"], ["complete"]]) {
    for (const [row, { cells }] of rows.entries()) {
      const column = cells.findLastIndex((cell) => cell !== null && wanted.includes(cell.state));
      if (column >= 0) return [row, column];
    }
  }
  const row = rows.findIndex(({ cells }) => cells.some((cell) => cell !== null));
  return row < 0 ? [0, 0] : [row, rows[row].cells.findIndex((cell) => cell !== null)];
}
