/** The supervisor of a source: its state, its jobs, its charts, its spec, and the actions on it. */

import { C, Fragment, h } from "./host.js";
import { useLive } from "./live.js";
import { RelativeTime, Chip, FactList, Statistic, Section, PageLink } from "./widgets.js";
import { dagPath, sourceApi } from "./urls.js";
import { AuditButton } from "./audit.js";
import { EmptyState, LiveContent } from "./problems.js";
import { RowOrigin } from "./row_origin.js";
import { SpecVersions } from "./spec_versions.js";
import { VerbButtons } from "./supervisor_actions.js";
import { OverTime, TaskCount } from "./supervisor_charts.js";
import { displayStateOf, SUPERVISOR_STATES, warningsOf } from "./supervisor_states.js";
import { Errors, LagOfShards, lagOf, ParseErrors, SupervisedJobs } from "./supervisor_tables.js";
import { stateOf } from "./states.js";
import { countText, rateText, roughText } from "./text.js";
import { Warning } from "./warning.js";

/**
 * The page.
 *
 * @param {{
 *   place: Place, connection: Api.ConnectionRow|null, parameters: URLSearchParams, change: Change, search: string,
 * }} props
 */
export function SupervisorPage({ place, connection, parameters, change, search }) {
  const live = useLive(sourceApi(place.connection, place.source, "supervisor"));
  const spec = useLive(sourceApi(place.connection, place.source, "supervisor/history"), { every: 10 });
  const ruling = spec.response?.versions.find((/** @type {Api.SpecFacts} */ each) => each.spec !== null)?.spec;
  const verbs = { place, connection, spec: ruling ?? null, refresh: live.refresh };
  if (live.response === null && live.problem?.kind === "missing") {
    return h(
      EmptyState,
      {
        title: "This source has no supervisor",
        text: "A supervisor keeps the jobs of a source running, as its spec describes. Write a DAG with supervised_ingestion, or submit a spec here.",
        icon: "plug",
        kind: "empty",
      },
      h(VerbButtons, { ...verbs, status: null }),
    );
  }
  return h(LiveContent, {
    live,
    what: "supervisor",
    connection: place.connection,
    rows: 8,
    children: (status) =>
      h(
        C.Stack,
        { key: "supervisor", gap: 6, pb: 6, "data-supervisor": displayStateOf(status) },
        h(StateSummary, { status, verbs: h(Fragment, null, h(AuditButton, { place, connection }), h(VerbButtons, { ...verbs, status })) }),
        h(SupervisedJobs, { status, place }),
        h(OverTime, { status, parameters, change }),
        h(TaskCount, { status, parameters }),
        h(LagOfShards, { status, search }),
        h(Errors, { errors: status.errors, search }),
        h(ParseErrors, { place }),
        h(RowOrigin, { place, parameters, change, search }),
        h(SpecVersions, { place, parameters, change }),
      ),
  });
}

/**
 * The state and the main statistics.
 *
 * @param {{status: Api.SupervisorWithVerbs, verbs: Content}} props
 */
function StateSummary({ status, verbs }) {
  const state = displayStateOf(status);
  const running = status.jobs.filter((job) => job.state === "RUNNING" || job.state === "ENDING").length;
  const rates = status.stats.rates["5m"] ?? {};
  const totals = status.stats.totals;
  const bad = (totals.processed_with_error ?? 0) + (totals.unparseable ?? 0);
  return h(
    Section,
    { title: "State", aside: verbs },
    h(
      C.Flex,
      { gap: 3, align: "center", wrap: "wrap", mb: 3 },
      h(Chip, { state, states: SUPERVISOR_STATES, size: "lg" }),
      h(C.Text, { fontSize: "sm", flex: "1 1 260px" }, stateOf(state, SUPERVISOR_STATES).meaning),
    ),
    // The alarm above the tabs already shows why it is unhealthy.
    h(C.Stack, { gap: 1, mb: 3 }, ...warningsOf(status).map(({ text, topic }) => h(Warning, { key: text, level: "warning", topic }, text))),
    h(
      C.Grid,
      { as: "dl", templateColumns: "repeat(auto-fill, minmax(120px, 1fr))", gap: 3, mb: 4 },
      h(Statistic, { name: "Jobs", note: status.task_count.wanted ? `of ${countText(status.task_count.wanted)}` : null }, countText(running)),
      h(Statistic, { name: "Longest lag" }, lagOf(status.lag.oldest_ms)),
      h(Statistic, { name: "Records, 5 min" }, `${roughText(Math.round(rates.processed ?? 0))}/s`),
      h(Statistic, { name: "Bytes, 5 min" }, rateText(rates.processed_bytes ?? 0)),
      h(Statistic, { name: "Delivered records" }, roughText(totals.processed ?? 0)),
      h(Statistic, { name: "Bad records" }, roughText(bad)),
      h(Statistic, { name: "Dropped records" }, roughText(totals.thrown_away ?? 0)),
      h(Statistic, { name: "Open partitions" }, countText(status.partitions.open)),
    ),
    h(FactList, {
      facts: [
        ["DAG", status.dag_id ? h(PageLink, { to: dagPath(status.dag_id) }, status.dag_id) : "no DAG has supervised it yet"],
        [
          "Spec",
          h(
            Fragment,
            null,
            `version ${status.spec_version}`,
            status.spec_by && ` by ${status.spec_by}`,
            ", ",
            h(RelativeTime, { instant: status.spec_at }),
          ),
        ],
        status.at_least_once.length > 0 && [
          "Delivery",
          `at least once to ${status.at_least_once.join(", ")}: a batch may arrive there more than once`,
        ],
        status.started_at !== null && ["Supervised since", h(RelativeTime, { instant: status.started_at })],
        status.polled_at !== null && ["Last check", h(RelativeTime, { instant: status.polled_at })],
        status.terminated !== null && [
          "Terminated",
          h(Fragment, null, h(RelativeTime, { instant: status.terminated.at }), status.terminated.reason && `: ${status.terminated.reason}`),
        ],
      ],
    }),
  );
}
