import { Flex, Grid } from "@chakra-ui/react";
import { useMemo } from "react";

import type { SupervisorWithVerbs } from "../api/schema";
import { Chart } from "../chart/Chart";
import { Choice } from "../chart/Choice";
import { ViewChoice } from "../chart/ViewChoice";
import { freshnessOverTime, lagOverTime, rateOverTime, watermarkOverTime, WINDOWS } from "../chart/series";
import { Section } from "../components/Section";
import { rateText } from "../format/text";
import { lagText } from "../format/time";
import type { Change } from "../types";
import { ListView } from "./ListView";
import { BAD_RECORDS, perSecond, useWindow } from "./rates";

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
      lag: lagOverTime(series),
      freshness: freshnessOverTime(series),
      watermark: watermarkOverTime(series),
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
          <Chart
            title="Longest lag of a partition"
            lines={[{ name: "lag", palette: "blue", points: lines.lag }]}
            window={window}
            unit="seconds"
            format={lagText}
          />
          <Chart
            title="Freshness of the slowest sink (p95)"
            lines={[{ name: "freshness", palette: "purple", points: lines.freshness }]}
            window={window}
            unit="seconds"
            format={lagText}
          />
          <Chart
            title="Age of the watermark"
            lines={[{ name: "watermark", palette: "orange", points: lines.watermark }]}
            window={window}
            unit="seconds"
            format={lagText}
          />
          <Chart
            title="Records delivered"
            lines={[{ name: "records", palette: "green", points: lines.records }]}
            window={window}
            unit="rate"
            format={perSecond}
          />
          <Chart
            title="Bytes delivered"
            lines={[{ name: "bytes", palette: "teal", points: lines.bytes }]}
            window={window}
            unit="bytes"
            format={rateText}
          />
          <Chart title="Bad and dropped records" lines={lines.bad} window={window} unit="rate" format={perSecond} />
        </Grid>
      )}
    </Section>
  );
}
