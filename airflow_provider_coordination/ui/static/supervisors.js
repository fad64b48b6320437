/** The supervisors of a connection as a list, those first that need an operator. */

import { C, Fragment, h } from "./host.js";
import { Chip, PageLink } from "./widgets.js";
import { dagPath, pathOf } from "./urls.js";
import { EmptyState } from "./problems.js";
import { SmallTable } from "./small_table.js";
import { VerbsForAll } from "./supervisor_actions.js";
import { isUnhealthy, displayStateOf, supervisorsByUrgency, SUPERVISOR_STATES, warningsOf } from "./supervisor_states.js";
import { lagOf } from "./supervisor_tables.js";
import { countText, plural, rateText, roughText } from "./text.js";

/**
 * @param {{
 *   connection: Api.ConnectionRow, statuses: Api.SupervisorWithVerbs[], search: string, refresh: () => void,
 * }} props
 */
export function Supervisors({ connection, statuses, search, refresh }) {
  if (statuses.length === 0) {
    return h(EmptyState, {
      title: "No supervisors yet",
      text: "Run a DAG with supervised_ingestion, or submit a spec.",
      icon: "plug",
      kind: "empty",
    }, h(VerbsForAll, { connection, count: 0, refresh }));
  }
  const found = statuses.filter((each) => each.source.toLowerCase().includes(search.toLowerCase()));
  const unhealthy = statuses.filter(isUnhealthy).length;
  return h(
    Fragment,
    null,
    h(
      C.Flex,
      { justify: "space-between", align: "center", gap: 2, mb: 2, wrap: "wrap" },
      h(
        C.Text,
        { fontSize: "sm", color: unhealthy > 0 ? "red.fg" : "fg.muted", "data-unhealthy": unhealthy },
        unhealthy > 0
          ? `${unhealthy} of ${plural(statuses.length, "supervisor")} ${unhealthy === 1 ? "is" : "are"} unhealthy.`
          : `${plural(statuses.length, "supervisor")}, none unhealthy.`,
      ),
      h(VerbsForAll, { connection, count: statuses.length, refresh }),
    ),
    found.length === 0
      ? h(EmptyState, { title: "No supervisor matches", text: `No source name contains “${search}”.`, kind: "empty" })
      : h(List, { connection: connection.connection_id, statuses: supervisorsByUrgency(found) }),
  );
}

/** @param {{connection: string, statuses: Api.SupervisorWithVerbs[]}} props */
function List({ connection, statuses }) {
  return h(SmallTable, {
    label: `Supervisors of ${connection}`,
    rows: statuses,
    keyOf: (status) => status.source,
    narrowBelow: 860,
    columns: [
      {
        name: "source",
        title: "Source",
        cell: (status) =>
          h(
            C.Box,
            { minW: 0 },
            h(
              PageLink,
              { to: pathOf({ connection, source: status.source, page: "supervisor" }), fontWeight: "semibold", dir: "auto" },
              status.source,
            ),
            status.dag_id &&
              h(
                C.Text,
                { fontSize: "xs", color: "fg.muted" },
                h(PageLink, { to: dagPath(status.dag_id), color: "fg.muted", "aria-label": `DAG ${status.dag_id}` }, status.dag_id),
              ),
          ),
      },
      {
        name: "state",
        title: "State",
        maxW: "440px",
        cell: (status) => h(StateCell, { status }),
      },
      {
        name: "jobs",
        title: "Jobs",
        align: "end",
        cell: (status) => {
          const running = status.jobs.filter((/** @type {Api.JobStatus} */ job) => job.state === "RUNNING").length;
          return status.task_count.wanted ? `${running} of ${countText(status.task_count.wanted)}` : countText(running);
        },
      },
      { name: "lag", title: "Lag", align: "end", cell: (status) => lagOf(status.lag.oldest_ms) },
      {
        name: "records",
        title: "Records, 5 min",
        align: "end",
        cell: (status) => `${roughText(Math.round(status.stats.rates["5m"]?.processed ?? 0))}/s`,
      },
      {
        name: "bytes",
        title: "Bytes, 5 min",
        align: "end",
        cell: (status) => rateText(status.stats.rates["5m"]?.processed_bytes ?? 0),
      },
      { name: "partitions", title: "Partitions", align: "end", cell: (status) => countText(status.partitions.open) },
      { name: "spec", title: "Spec", align: "end", cell: (status) => `version ${status.spec_version}` },
    ],
  });
}

/** @param {{status: Api.SupervisorWithVerbs}} props */
function StateCell({ status }) {
  const state = displayStateOf(status);
  const [error] = status.errors;
  const text =
    state === "DAG_PAUSED"
      ? "its DAG is paused"
      : state === "SUSPENDED"
        ? status.suspended?.reason
        : isUnhealthy(status)
          ? error && `${error.error_class}: ${error.message}`
          : warningsOf(status)[0]?.text;
  return h(
    C.Stack,
    { gap: 0.5, minW: 0 },
    h(Chip, { state, states: SUPERVISOR_STATES, alignSelf: "flex-start" }),
    text &&
      h(
        C.Text,
        {
          fontSize: "xs",
          color: isUnhealthy(status) ? "red.fg" : state === "RUNNING" ? "orange.fg" : "fg.muted",
          overflowWrap: "anywhere",
          lineClamp: 2,
        },
        text,
      ),
  );
}
