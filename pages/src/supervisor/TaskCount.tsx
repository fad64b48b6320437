import { Badge, Box, Span, Strong, Text } from "@chakra-ui/react";
import { useMemo } from "react";

import type { SupervisorWithVerbs } from "../api/schema";
import { Chart } from "../chart/Chart";
import { countOverTime } from "../chart/series";
import { Instant } from "../components/Instant";
import { Section } from "../components/Section";
import { plural } from "../format/text";
import { PHONE_WIDTH, SmallTable } from "../table/SmallTable";
import { useWindow } from "./rates";

/** The number of jobs that the supervisor wants: over time, and each change with its reason. */
export function TaskCount({ status, parameters }: { status: SupervisorWithVerbs; parameters: URLSearchParams }) {
  const { window } = useWindow(parameters);
  const { task_count: count } = status;
  const points = useMemo(() => countOverTime(count, window.until), [count, window.until]);
  const bounds = count.min === null || count.max === null ? null : `scales from ${count.min} to ${count.max} jobs`;
  return (
    <Section title="Number of jobs">
      <>
        <Text fontSize="sm" mb={2} data-task-count={count.wanted}>
          <Strong>
            {count.wanted === null ? "The number of jobs is not decided yet" : `${plural(count.wanted, "job")} wanted`}
          </Strong>
          {count.reason && `: ${count.reason}`}
          {bounds && <Span color="fg.muted">{` (${bounds})`}</Span>}
        </Text>
        {points.length > 1 && (
          <Chart
            title="Jobs wanted"
            lines={[{ name: "jobs", palette: "cyan", points, isStep: true }]}
            window={window}
            unit="count"
            format={(value) => plural(value, "job")}
          />
        )}
        {count.changes.length > 0 && (
          <Box mt={3}>
            <SmallTable
              label="Changes in the number of jobs"
              rows={count.changes.toReversed()}
              keyOf={(each) => `${each.at} ${each.before} ${each.after}`}
              narrowBelow={PHONE_WIDTH}
              columns={[
                { name: "at", title: "At", width: "210px", cell: (each) => <Instant instant={each.at} /> },
                {
                  name: "change",
                  title: "Jobs",
                  width: "90px",
                  cell: (each) =>
                    each.before === each.after ? (
                      <Badge colorPalette="orange" variant="subtle">
                        {`stays ${each.after}`}
                      </Badge>
                    ) : (
                      `${each.before} → ${each.after}`
                    ),
                },
                { name: "reason", title: "Why", maxW: "none", cell: (each) => each.reason },
              ]}
            />
          </Box>
        )}
      </>
    </Section>
  );
}
