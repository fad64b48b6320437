import { Badge, Flex, Span, Stack, Text } from "@chakra-ui/react";

import type { Owner } from "../api/schema";
import { Instant } from "../components/Instant";
import { PageLink } from "../components/PageLink";
import { countText, plural } from "../format/text";
import type { Content, Place } from "../types";
import { pathOf, taskPath } from "../urls";
import type { Cell } from "./cells";
import { INTERVALS } from "./intervalStates";
import { holdTarget } from "./target";
import { countsText, intervalText, runText } from "./texts";

/** What is known of an interval. */
export function About({ cell, place, isExact }: { cell: Cell; place: Place; isExact: boolean }) {
  const state = INTERVALS[cell.state];
  return (
    <Stack gap={1} minH="84px">
      <Flex gap={2} align="center" wrap="wrap">
        <Text fontWeight="semibold" fontVariantNumeric="tabular-nums">
          {intervalText(cell)}
        </Text>
        <Badge colorPalette={state.palette} variant="subtle">
          <Span aria-hidden>{state.sign}</Span>
          {state.label}
        </Badge>
        <Text fontSize="xs" color="fg.muted">
          <Instant instant={new Date(cell.start).toISOString()} />
        </Text>
      </Flex>
      {linesOf(cell, place, isExact).map((line, index) => (
        <Text key={index} as="div" fontSize="xs" color="fg.muted" overflowWrap="anywhere">
          {line}
        </Text>
      ))}
    </Stack>
  );
}

function linesOf(cell: Cell, place: Place, isExact: boolean): Content[] {
  const lines: Content[] = [INTERVALS[cell.state].meaning];
  const { counts = null, late = null, reported_by: by = null, lost = [] } = cell.known ?? {};
  if (counts !== null) {
    const until = by !== null ? "" : isExact ? " so far" : " so far, at least";
    lines.push(`Delivered${until}: ${countsText(counts)}.`);
  }
  if (late !== null) lines.push(`Late, after it was reported: ${countsText(late)}.`);
  if (by !== null) lines.push(taskLine("Reported by ", by));
  if (cell.known?.corrected_by) lines.push(taskLine("Late records reported by ", cell.known.corrected_by));
  if (lost.length > 0) lines.push(`Lost: ${lost.join("; ")}`);
  for (const hold of cell.held.slice(0, 2)) {
    lines.push(
      <>
        {"Held by "}
        <PageLink to={holdTarget(hold.name, place)}>{hold.name}</PageLink>
        {`: ${hold.reason}`}
      </>,
    );
  }
  for (const run of cell.runs.slice(0, 3)) {
    lines.push(
      <>
        {"Partitions of "}
        <PageLink to={pathOf({ ...place, source: run.source, page: "partitions" })}>{run.source}</PageLink>
        {`: ${runText(run)}`}
      </>,
    );
  }
  if (cell.runs.length > 3)
    lines.push(`${plural(cell.runs.length - 3, "more run")}: ${countText(cell.runs.length)} in all.`);
  return lines;
}

function taskLine(text: string, by: Owner): Content {
  const path = taskPath(by);
  return (
    <>
      {text}
      {path === null ? by.name : <PageLink to={path}>{`${by.dag_id}, ${by.task_id}`}</PageLink>}
    </>
  );
}
