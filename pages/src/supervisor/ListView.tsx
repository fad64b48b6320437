import { within } from "../chart/series";
import { Instant } from "../components/Instant";
import { capitalized, rateText } from "../format/text";
import { lagText } from "../format/time";
import { SmallTable } from "../table/SmallTable";
import type { Line, TimePoint } from "../types";
import { perSecond } from "./rates";

export function ListView({
  lines,
  window,
}: {
  lines: {
    lag: TimePoint[];
    freshness: TimePoint[];
    watermark: TimePoint[];
    records: TimePoint[];
    bytes: TimePoint[];
    bad: Line[];
  };
  window: { since: number; until: number };
}) {
  const byInstant = (points: TimePoint[]) => new Map(points.map(({ at, value }) => [at, value]));
  const columns = (
    [
      ["lag", "Lag", lines.lag, lagText],
      ["freshness", "Freshness", lines.freshness, lagText],
      ["watermark", "Watermark", lines.watermark, lagText],
      ["records", "Records", lines.records, perSecond],
      ["bytes", "Bytes", lines.bytes, rateText],
      ...lines.bad.map((line) => [line.name, capitalized(line.name), line.points, perSecond]),
    ] as [string, string, TimePoint[], (value: number) => string][]
  ).map(([name, title, points, format]) => ({ name, title, format, values: byInstant(points) }));
  return (
    <SmallTable
      label="Over time"
      rows={within(lines.lag, window).toReversed()}
      keyOf={(point) => String(point.at)}
      columns={[
        {
          name: "at",
          title: "At",
          cell: (point) => <Instant instant={new Date(point.at).toISOString()} withAge={false} />,
        },
        ...columns.map(({ name, title, format, values }) => ({
          name,
          title,
          align: "end",
          cell: (point: TimePoint) => {
            const value = values.get(point.at) ?? null;
            return value === null ? "–" : format(value);
          },
        })),
      ]}
    />
  );
}
