/** The supervisor of a source: its state, its jobs, what happened over time, its spec, and the verbs. */

import { C, Fragment, h } from "./host.js";
import { useLive } from "./live.js";
import { Ago, Chip, Facts, Figure, Part, To } from "./widgets.js";
import { dagPath, sourceApi } from "./urls.js";
import { Nothing, Shown } from "./problems.js";
import { SpecVersions } from "./spec_versions.js";
import { VerbButtons } from "./supervisor_actions.js";
import { OverTime, TaskCount } from "./supervisor_charts.js";
import { standingOf, SUPERVISOR_STATES, warningsOf } from "./supervisor_states.js";
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
  const ruling = spec.answer?.versions.find((/** @type {Api.SpecFacts} */ each) => each.spec !== null)?.spec;
  const verbs = { place, connection, spec: ruling ?? null, refresh: live.refresh };
  if (live.answer === null && live.problem?.kind === "missing") {
    return h(
      Nothing,
      {
        title: "This source has no supervisor",
        text: "A supervisor keeps the jobs of a source running by a spec. Write a DAG with supervised_ingestion, or submit a spec here.",
        icon: "plug",
        kind: "empty",
      },
      h(VerbButtons, { ...verbs, status: null }),
    );
  }
  return h(Shown, {
    live,
    what: "supervisor",
    connection: place.connection,
    rows: 8,
    children: (status) =>
      h(
        C.Stack,
        { key: "supervisor", gap: 6, pb: 6, "data-supervisor": standingOf(status) },
        h(Standing, { status, verbs: h(VerbButtons, { ...verbs, status }) }),
        h(SupervisedJobs, { status, place }),
        h(OverTime, { status, parameters, change }),
        h(TaskCount, { status, parameters }),
        h(LagOfShards, { status, search }),
        h(Errors, { errors: status.errors, search }),
        h(ParseErrors, { place }),
        h(SpecVersions, { place, parameters, change }),
      ),
  });
}

/**
 * The state and the figures that one wants first.
 *
 * @param {{status: Api.SupervisorStatus, verbs: Content}} props
 */
function Standing({ status, verbs }) {
  const standing = standingOf(status);
  const running = status.jobs.filter((job) => job.state === "RUNNING" || job.state === "ENDING").length;
  const rates = status.stats.rates["5m"] ?? {};
  const totals = status.stats.totals;
  const bad = (totals.processed_with_error ?? 0) + (totals.unparseable ?? 0);
  return h(
    Part,
    { title: "State", aside: verbs },
    h(
      C.Flex,
      { gap: 3, align: "center", wrap: "wrap", mb: 3 },
      h(Chip, { state: standing, states: SUPERVISOR_STATES, size: "lg" }),
      h(C.Text, { fontSize: "sm", flex: "1 1 260px" }, stateOf(standing, SUPERVISOR_STATES).meaning),
    ),
    // What makes it unhealthy is said above the tabs already.
    h(C.Stack, { gap: 1, mb: 3 }, ...warningsOf(status).map((text) => h(Warning, { key: text, level: "warning" }, text))),
    h(
      C.Grid,
      { as: "dl", templateColumns: "repeat(auto-fill, minmax(120px, 1fr))", gap: 3, mb: 4 },
      h(Figure, { name: "Jobs", note: status.task_count.wanted ? `of ${countText(status.task_count.wanted)}` : null }, countText(running)),
      h(Figure, { name: "Lag, oldest" }, lagOf(status.lag.oldest_ms)),
      h(Figure, { name: "Records, 5 min" }, `${roughText(Math.round(rates.processed ?? 0))}/s`),
      h(Figure, { name: "Bytes, 5 min" }, rateText(rates.processed_bytes ?? 0)),
      h(Figure, { name: "Delivered" }, roughText(totals.processed ?? 0)),
      h(Figure, { name: "Bad records" }, roughText(bad)),
      h(Figure, { name: "Thrown away" }, roughText(totals.thrown_away ?? 0)),
      h(Figure, { name: "Open partitions" }, countText(status.partitions.open)),
    ),
    h(Facts, {
      facts: [
        ["DAG", status.dag_id ? h(To, { to: dagPath(status.dag_id) }, status.dag_id) : "none has supervised it yet"],
        [
          "Spec",
          h(
            Fragment,
            null,
            `version ${status.spec_version}`,
            status.spec_by && ` by ${status.spec_by}`,
            ", ",
            h(Ago, { instant: status.spec_at }),
          ),
        ],
        status.at_least_once.length > 0 && [
          "Delivery",
          `at least once to ${status.at_least_once.join(", ")}: a batch may come there more than once`,
        ],
        status.started_at !== null && ["Supervised since", h(Ago, { instant: status.started_at })],
        status.looked_at !== null && ["Last look", h(Ago, { instant: status.looked_at })],
        status.terminated !== null && [
          "Terminated",
          h(Fragment, null, h(Ago, { instant: status.terminated.at }), status.terminated.because && `: ${status.terminated.because}`),
        ],
      ],
    }),
  );
}
