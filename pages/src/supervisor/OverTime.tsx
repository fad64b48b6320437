import { Flex, Grid } from "@chakra-ui/react";
import { useMemo } from "react";

import type { SupervisorWithVerbs } from "../api/schema";
import { Chart } from "../chart/Chart";
import { Choice } from "../chart/Choice";
import { ViewChoice } from "../chart/ViewChoice";
import { rateOverTime, secondsOverTime, WINDOWS } from "../chart/series";
import { Section } from "../components/Section";
import { rateText } from "../format/text";
import { lagText } from "../format/time";
import type { Change } from "../types";
import { ListView } from "./ListView";
import { BAD_RECORDS, perSecond, useWindow } from "./rates";

const AGE = { unit: "seconds", format: lagText } as const;
const RATE = { unit: "rate", format: perSecond } as const;
const BYTES = { unit: "bytes", format: rateText } as const;

export function OverTime({
  status,
  parameters,
  change,
}: {
  status: SupervisorWithVerbs;
  parameters: URLSearchParams;
  change: Change;
}) {
  const { name, window } = useWindow(parameters);
  const isList = parameters.get("as") === "list";
  const series = status.lag_series;
  const lines = useMemo(
    () => ({
      lag: secondsOverTime(series, "oldest_ms"),
      freshness: secondsOverTime(series, "freshness_ms"),
      watermark: secondsOverTime(series, "watermark_ms"),
      records: rateOverTime(series, ["processed"]),
      bytes: rateOverTime(series, ["processed_bytes"]),
      bad: BAD_RECORDS.map(([field, label, palette, dashes]) => ({
        name: label,
        palette,
        dashes,
        points: rateOverTime(series, [field]),
      })),
    }),
    [series],
  );
  const charts = [
    { title: "Longest lag of a partition", name: "lag", palette: "blue", points: lines.lag, ...AGE },
    {
      title: "Freshness of the slowest sink (p95)",
      name: "freshness",
      palette: "purple",
      points: lines.freshness,
      ...AGE,
    },
    { title: "Age of the watermark", name: "watermark", palette: "orange", points: lines.watermark, ...AGE },
    { title: "Records delivered", name: "records", palette: "green", points: lines.records, ...RATE },
    { title: "Bytes delivered", name: "bytes", palette: "teal", points: lines.bytes, ...BYTES },
  ];
  return (
    <Section
      title="Over time"
      aside={
        <Flex gap={2}>
          <Choice
            label="Time range"
            value={name}
            options={Object.keys(WINDOWS).map((each) => [each, each.replace("h", " h")]) as [string, string][]}
            onChange={(chosen) => change({ window: chosen === "1h" ? null : chosen })}
          />
          <ViewChoice value={isList ? "list" : "picture"} onChange={(value) => change({ as: value })} />
        </Flex>
      }
    >
      {isList ? (
        <ListView lines={lines} window={window} />
      ) : (
        <Grid templateColumns="repeat(auto-fill, minmax(min(100%, 420px), 1fr))" gap={3}>
          {charts.map(({ title, unit, format, ...line }) => (
            <Chart key={title} title={title} lines={[line]} window={window} unit={unit} format={format} />
          ))}
          <Chart title="Bad and dropped records" lines={lines.bad} window={window} {...RATE} />
        </Grid>
      )}
    </Section>
  );
}
