/** The calendar as rows of cells. */

import { expect, test } from "vitest";

import type { Calendar, Counts, IntervalRun, KnownInterval, Owner, SourceCard } from "../api/schema";
import { firstCell, gridOf, nextCell, rangeOf, type CalendarGrid } from "./cells";
import { countsText, intervalText, nameOf } from "./texts";

const HOUR = 3600000;
const NOW = Date.parse("2026-01-31T12:30:00Z");
const instant = (hours: number) => new Date(Date.parse("2026-01-31T00:00:00Z") + hours * HOUR).toISOString();
const counts = (hours: number, records = 1): Counts => ({
  start: instant(hours),
  records,
  bytes: 100,
  batches: 1,
  late: 0,
  dead_letters: 0,
  is_reread: false,
});
const EMPTY: Calendar = {
  as_of: new Date(NOW).toISOString(),
  since: instant(-24),
  until: instant(24),
  whole: "clicks",
  counted: null,
  runs: [],
  complete: true,
};
const COUNTED = {
  every: 3600,
  start: instant(2),
  next: instant(8),
  known: [] as KnownInterval[],
  late_records: 0,
  is_exact: true,
};
const known = (hours: number, facts: Partial<KnownInterval>): KnownInterval => ({
  start: instant(hours),
  counts: null,
  late: null,
  reported_by: null,
  corrected_by: null,
  lost: [],
  ...facts,
});
const run = (start: number, hours: number, state: IntervalRun["state"]): IntervalRun => ({
  source: `clicks@${start}`,
  start: instant(start),
  end: instant(start + hours),
  state,
  partitions: { COMPLETED: 2 },
  parked: 0,
  failing: 0,
});
const cardWith = (until: number | null, held: Partial<SourceCard> & { is_parked?: boolean } = {}) =>
  ({
    failing_partitions: [],
    watermark: {
      until: until === null ? null : instant(until),
      is_finished: false,
      held_by: [
        { name: "a", until: until === null ? null : instant(until), reason: "parked", is_parked: false, ...held },
      ],
      sinks: {},
    },
    ...held,
  }) as unknown as SourceCard;
const at = (grid: CalendarGrid, hours: number) =>
  grid.rows.flatMap((row) => row.cells).find((cell) => cell?.start === Date.parse(instant(hours)));
const states = (grid: CalendarGrid, ...hours: number[]) => hours.map((hour) => at(grid, hour)?.state);

test("hours are the columns of days, the latest day first", () => {
  const { rows, columns } = gridOf({ ...EMPTY, counted: COUNTED }, null);
  expect(rows.map((row) => row.title)).toEqual(["Sat 2026-01-31", "Fri 2026-01-30"]);
  expect([columns.length, columns[0], columns[23]]).toEqual([24, "00", "23"]);
  expect(rows.every((row) => row.cells.length === 24)).toBe(true);
});

test("intervals before the next one to report are complete, and those before the first one unknown", () => {
  const grid = gridOf({ ...EMPTY, counted: COUNTED }, cardWith(10));
  expect(states(grid, 1, 2, 7)).toEqual(["none", "complete", "complete"]);
});

test("the watermark decides what is complete and not reported", () => {
  const grid = gridOf({ ...EMPTY, counted: COUNTED }, cardWith(10));
  expect(states(grid, 8, 9, 10, 12, 13)).toEqual(["due", "due", "running", "running", "ahead"]);
});

test("a parked or failing partition that holds an interval makes it fail", () => {
  const parked = gridOf({ ...EMPTY, counted: COUNTED }, cardWith(10, { is_parked: true }));
  expect(states(parked, 9, 10)).toEqual(["due", "failed"]);
  const failing = [{ partition_key: "a", attempts: 2, last_error: null }];
  expect(states(gridOf({ ...EMPTY, counted: COUNTED }, cardWith(null, { failing_partitions: failing })), 9)).toEqual([
    "failed",
  ]);
});

test("an interval that a task took is being reported, with its counts", () => {
  const taken = known(8, { counts: counts(8, 7), reported_by: { name: "t" } as Owner });
  const grid = gridOf({ ...EMPTY, counted: { ...COUNTED, known: [taken] } }, cardWith(10));
  expect([at(grid, 8)?.state, at(grid, 8)?.known?.counts?.records]).toEqual(["reporting", 7]);
});

test("late records leave an interval complete", () => {
  const grid = gridOf({ ...EMPTY, counted: { ...COUNTED, known: [known(3, { late: counts(3, 7) })] } }, null);
  expect([at(grid, 3)?.state, at(grid, 3)?.known?.late?.records, at(grid, 4)?.known]).toEqual(["complete", 7, null]);
});

test("a finished source has nothing after its last record", () => {
  const card = { ...cardWith(null), watermark: { until: null, is_finished: true, held_by: [], sinks: {} } };
  const grid = gridOf(
    { ...EMPTY, counted: { ...COUNTED, known: [known(9, { counts: counts(9) })] } },
    card as SourceCard,
  );
  expect(states(grid, 8, 9, 10)).toEqual(["due", "due", "none"]);
});

test("nothing is reported while the first interval is unknown", () => {
  const grid = gridOf({ ...EMPTY, counted: { ...COUNTED, start: null, next: null } }, cardWith(10));
  expect(states(grid, 2, 9, 20)).toEqual(["none", "none", "ahead"]);
});

test("runs have their states, and hours without a run nothing", () => {
  const runs = [run(0, 1, "complete"), run(1, 1, "failed"), run(2, 1, null)];
  expect(states(gridOf({ ...EMPTY, runs }, null), 0, 1, 2, 3, 20)).toEqual([
    "complete",
    "failed",
    "unknown",
    "none",
    "ahead",
  ]);
});

test("a run that covers several cells is in each, and the worst state counts", () => {
  const runs = [run(0, 1, "complete"), run(1, 1, "complete"), run(2, 1, "complete"), run(1, 2, "waiting")];
  const grid = gridOf({ ...EMPTY, runs }, null);
  expect(states(grid, 0, 1, 2)).toEqual(["complete", "waiting", "waiting"]);
  expect(at(grid, 1)?.runs.length).toBe(2);
});

test("days are the columns of weeks from Monday on", () => {
  const { rows, columns } = gridOf({ ...EMPTY, runs: [run(-24, 24, "complete"), run(0, 24, "running")] }, null);
  expect([columns[0], columns.length]).toEqual(["Mon", 7]);
  expect(rows.map((row) => [row.title, row.cells.map((cell) => cell?.state ?? "")])).toEqual([
    ["2026-01-26", ["", "", "", "", "complete", "running", ""]],
  ]);
});

test("days that begin at another hour are one cell each", () => {
  const grid = gridOf({ ...EMPTY, runs: [run(-25, 24, "complete"), run(-1, 24, "failed")] }, null);
  const named = grid.rows.flatMap((row) => row.cells).filter((cell) => cell !== null && cell.runs.length > 0);
  expect(named.map((cell) => [cell?.state, cell?.runs.length])).toEqual([["failed", 1]]);
});

test("short intervals have rows of six hours or of one", () => {
  const grid = (every: number) => gridOf({ ...EMPTY, counted: { ...COUNTED, every } }, null);
  expect([grid(900).columns.length, grid(900).columns[1], grid(900).rows[0].title]).toEqual([
    24,
    "+00:15",
    "Sat 2026-01-31 18:00",
  ]);
  expect([grid(60).columns.length, grid(60).columns[1], grid(60).rows.length, grid(60).isCut]).toEqual([
    60,
    ":01",
    25,
    true,
  ]);
});

test("arrow keys move between cells and stay inside", () => {
  const { rows } = gridOf({ ...EMPTY, counted: COUNTED }, null);
  expect(nextCell("ArrowRight", rows, [0, 3])).toEqual([0, 4]);
  expect(nextCell("ArrowDown", rows, [0, 3])).toEqual([1, 3]);
  expect([nextCell("ArrowUp", rows, [0, 3]), nextCell("ArrowLeft", rows, [0, 0]), nextCell("a", rows, [0, 0])]).toEqual(
    [null, null, null],
  );
  expect([nextCell("Home", rows, [1, 9]), nextCell("End", rows, [1, 9]), nextCell("PageDown", rows, [0, 9])]).toEqual([
    [1, 0],
    [1, 23],
    [1, 9],
  ]);
});

test("the focus begins at what failed, or else at the latest interval", () => {
  const runs = [run(0, 1, "complete"), run(-3, 1, "failed")];
  expect(firstCell(gridOf({ ...EMPTY, runs }, null).rows)).toEqual([1, 21]);
  expect(firstCell(gridOf({ ...EMPTY, runs: runs.slice(0, 1) }, null).rows)).toEqual([0, 0]);
});

test("the address says how many days are shown and until when", () => {
  expect(rangeOf(new URLSearchParams())).toEqual({ days: 14, until: null });
  expect(rangeOf(new URLSearchParams({ days: "31", until: "2026-01-31" }))).toEqual({
    days: 31,
    until: "2026-01-31T00:00:00.000Z",
  });
  expect(rangeOf(new URLSearchParams({ days: "9999", until: "soon" }))).toEqual({ days: 14, until: null });
});

test("a cell names its interval, its state and its counts", () => {
  const grid = gridOf(
    { ...EMPTY, counted: { ...COUNTED, known: [known(9, { counts: counts(9, 1234) })] } },
    cardWith(10),
  );
  const cell = at(grid, 9);
  expect(cell && nameOf(cell)).toBe("2026-01-31 09:00 to 10:00 UTC: To be reported; 1,234 records, 100 bytes, 1 batch");
  expect(intervalText({ start: Date.parse(instant(23)), end: Date.parse(instant(24)) })).toBe(
    "2026-01-31 23:00 to 2026-02-01 00:00 UTC",
  );
  expect(countsText({ ...counts(0), late: 2, dead_letters: 1, is_reread: true })).toBe(
    "1 record, 100 bytes, 1 batch, 2 left out by event time, 1 dead letter, some of them delivered again after a reset",
  );
});
