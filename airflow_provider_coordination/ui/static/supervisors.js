/** The supervisors of a connection as a list, those first that need a person. */

import { C, Fragment, h } from "./host.js";
import { Chip, To } from "./widgets.js";
import { dagPath, pathOf } from "./urls.js";
import { Nothing } from "./problems.js";
import { SmallTable } from "./small_table.js";
import { VerbsForAll } from "./supervisor_actions.js";
import { isUnhealthy, standingOf, supervisorsByUrgency, SUPERVISOR_STATES, warningsOf } from "./supervisor_states.js";
import { lagOf } from "./supervisor_tables.js";
import { countText, plural, rateText, roughText } from "./text.js";

/**
 * @param {{
 *   connection: Api.ConnectionRow, statuses: Api.SupervisorStatus[], search: string, refresh: () => void,
 * }} props
 */
export function Supervisors({ connection, statuses, search, refresh }) {
  if (statuses.length === 0) {
    return h(Nothing, {
      title: "No supervisors yet",
      text: "A supervisor appears here when a DAG with supervised_ingestion has run, or a spec was submitted.",
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
          ? `${unhealthy} of ${plural(statuses.length, "supervisor")} ${unhealthy === 1 ? "needs" : "need"} a person.`
          : `${plural(statuses.length, "supervisor")}. None needs a person.`,
      ),
      h(VerbsForAll, { connection, count: statuses.length, refresh }),
    ),
    found.length === 0
      ? h(Nothing, { title: "No supervisor has this in its name", text: search, kind: "empty" })
      : h(List, { connection: connection.connection_id, statuses: supervisorsByUrgency(found) }),
  );
}

/** @param {{connection: string, statuses: Api.SupervisorStatus[]}} props */
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
              To,
              { to: pathOf({ connection, source: status.source, page: "supervisor" }), fontWeight: "semibold", dir: "auto" },
              status.source,
            ),
            status.dag_id &&
              h(
                C.Text,
                { fontSize: "xs", color: "fg.muted" },
                h(To, { to: dagPath(status.dag_id), color: "fg.muted", "aria-label": `DAG ${status.dag_id}` }, status.dag_id),
              ),
          ),
      },
      {
        name: "state",
        title: "State",
        maxW: "440px",
        cell: (status) => h(Standing, { status }),
      },
      {
        name: "jobs",
        title: "Jobs",
        align: "end",
        cell: (status) => {
          const running = status.jobs.filter((/** @type {Api.SupervisedJobFacts} */ job) => job.state === "RUNNING").length;
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

/** @param {{status: Api.SupervisorStatus}} props */
function Standing({ status }) {
  const standing = standingOf(status);
  const [error] = status.errors;
  const text =
    standing === "DAG_PAUSED"
      ? "its DAG is paused"
      : standing === "SUSPENDED"
        ? status.suspended?.reason
        : isUnhealthy(status)
          ? error && `${error.error_class}: ${error.message}`
          : warningsOf(status)[0];
  return h(
    C.Stack,
    { gap: 0.5, minW: 0 },
    h(Chip, { state: standing, states: SUPERVISOR_STATES, alignSelf: "flex-start" }),
    text &&
      h(
        C.Text,
        {
          fontSize: "xs",
          color: isUnhealthy(status) ? "red.fg" : standing === "RUNNING" ? "orange.fg" : "fg.muted",
          overflowWrap: "anywhere",
          lineClamp: 2,
        },
        text,
      ),
  );
}
