/**
 * Lease inspection in Airflow's UI: the module that Airflow loads. One component is every page and tab. The URL, or the run
 * in its properties, selects which.
 *
 * There is no build step for the modules beside this one. They run as they are, on the React, the router and the
 * Chakra UI that Airflow's UI shares; host.js says what an Airflow lacks. Their API is below `/coordination`.
 */

import { AcknowledgmentsPage } from "./acknowledgments.js";
import { Frame, Root } from "./frame.js";
import { C, Component, Theme, failure, h, useCallback, useLocation, useNavigate } from "./host.js";
import { useLive } from "./live.js";
import { Overview } from "./overview.js";
import { PartitionDrawer } from "./partition.js";
import { PartitionsPage } from "./partitions.js";
import { readPlace, sourceApi, withParameters } from "./urls.js";
import { ProblemPage, EmptyState } from "./problems.js";
import { useConnection } from "./permissions.js";
import { ShardsPage } from "./shards.js";
import { SupervisorPage } from "./supervisor.js";
import { TaskTab } from "./task_tab.js";
import { TimelinePage } from "./timeline.js";
import { WorkersPage } from "./workers.js";

// All other modules, also those that are imported indirectly, so that a browser requests all of them at once.
import "./actions.js";
import "./api.js";
import "./audit.js";
import "./audit_findings.js";
import "./chart.js";
import "./icons.js";
import "./polling.js";
import "./action_requests.js";
import "./action_widgets.js";
import "./pages.js";
import "./partition_cells.js";
import "./partition_filters.js";
import "./partition_list.js";
import "./chart_controls.js";
import "./widgets.js";
import "./reason_dialog.js";
import "./row_origin.js";
import "./refresh_pause.js";
import "./reset_target.js";
import "./series.js";
import "./shard_layout.js";
import "./shard_picture.js";
import "./sinks.js";
import "./element_size.js";
import "./small_table.js";
import "./spec_changes.js";
import "./spec_versions.js";
import "./states.js";
import "./supervisor_actions.js";
import "./supervisor_charts.js";
import "./supervisor_states.js";
import "./supervisor_tables.js";
import "./supervisors.js";
import "./suspend_button.js";
import "./table.js";
import "./messages.js";
import "./text.js";
import "./clock.js";
import "./time.js";
import "./timeline_chart.js";
import "./timeline_layout.js";
import "./typing.js";
import "./user_actions.js";
import "./warning.js";
import "./watermark.js";
import "./virtual_rows.js";

/** The component of each page of `PAGES`. */
/** @type {Record<string, (props: any) => Content>} */
const PAGE_COMPONENTS = {
  partitions: PartitionsPage,
  shards: ShardsPage,
  timeline: TimelinePage,
  acknowledgments: AcknowledgmentsPage,
  workers: WorkersPage,
  supervisor: SupervisorPage,
};

/**
 * A page of a source, with the drawer of a partition above it if the URL names one.
 *
 * @param {{place: Place}} props
 */
function Source({ place }) {
  const { search } = useLocation();
  const navigate = useNavigate();
  const parameters = new URLSearchParams(search);
  const live = useLive(sourceApi(place.connection, place.source, "summary"));
  const connection = useConnection(place.connection);
  // Opening a partition adds an entry to the browser's history; typing a filter does not.
  const change = useCallback(
    /** @type {Change} */
    (changes, { keep = false } = {}) =>
      navigate({ search: withParameters(globalThis.location.search, changes) }, { replace: !keep }),
    [navigate],
  );
  const opened = parameters.get("partition");
  const { response: card, problem } = live;
  const isRefused =
    card === null && problem !== null && ["session", "forbidden", "missing", "refused"].includes(problem.kind);
  return h(
    Frame,
    { place, card, live, connection },
    isRefused
      ? h(ProblemPage, { problem, connection: place.connection, refresh: live.refresh })
      : h(PAGE_COMPONENTS[place.page], { place, card, connection, parameters, change, search }),
    opened &&
      !isRefused &&
      h(PartitionDrawer, {
        place,
        connection,
        partitionKey: opened,
        search,
        onClose: () => change({ partition: null }),
      }),
  );
}

/** Keeps an error of these pages from breaking Airflow's page. */
class Guard extends /** @type {typeof Component<{children?: Content}>} */ (Component) {
  /** @type {{error: unknown}} */
  state = { error: null };

  /** @param {unknown} error */
  static getDerivedStateFromError(error) {
    return { error };
  }

  render() {
    if (this.state.error === null) return this.props.children;
    return h(
      EmptyState,
      {
        title: "This page failed",
        text: String(this.state.error instanceof Error ? this.state.error.message : this.state.error),
        icon: "alert",
        role: "alert",
        kind: "failed",
      },
      h(C.Button, { size: "sm", variant: "outline", onClick: () => this.setState({ error: null }) }, "Try again"),
    );
  }
}

/** What is shown without Chakra UI, of which everything else is made. */
function Missing() {
  return h(
    "p",
    { role: "alert" },
    "This Airflow shares no Chakra UI with plugins, and ours could not be loaded: install " +
      "airflow-provider-coordination from its wheel, or run `make venv` in a checkout with Node.js. ",
    failure,
  );
}

/**
 * The component that Airflow draws: a page in its navigation, or a tab of a run or of a task instance.
 *
 * @param {any} props
 */
function Coordination(props) {
  const { pathname } = useLocation();
  const isTab = Boolean(props.dagId && props.runId);
  const place = readPlace(pathname);
  return h(
    Theme,
    null,
    h(
      Root,
      isTab ? { p: 0, h: "auto", overflow: "visible" } : {},
      h(
        Guard,
        null,
        isTab
          ? h(TaskTab, props)
          : place.source === null
            ? h(Overview)
            : h(Source, { key: `${place.connection} ${place.source}`, place: /** @type {Place} */ (place) }),
      ),
    ),
  );
}

globalThis.AirflowPlugin = failure === null ? Coordination : Missing;
