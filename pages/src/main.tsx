/**
 * The pages in Airflow's UI: one component is every page and tab. The URL, or the run in its properties, selects which.
 *
 * React and its router are Airflow's; everything else is bundled. The API of the pages is below `/coordination`.
 */

import { Button } from "@chakra-ui/react";
import { Component, useCallback } from "react";
import { useLocation, useNavigate } from "react-router-dom";

import { useLive } from "./api/live";
import { useConnection } from "./api/permissions";
import { EmptyState } from "./components/EmptyState";
import { ProblemPage } from "./components/ProblemPage";
import { Frame } from "./frame/Frame";
import { Root } from "./frame/Root";
import { Overview, PAGE_COMPONENTS, PartitionDrawer, preloadPage, TaskTab } from "./pages";
import "./shared";
import { Theme } from "./theme";
import type { Change, Content, Place } from "./types";
import { readPlace, sourceApi, withParameters } from "./urls";
import type { SourceCard } from "./api/schema";

/** What Airflow gives a tab of a run or of a task instance. */
type RunProps = { dagId: string; runId: string; taskId?: string; mapIndex?: string };

/** A page of a source, with the drawer of a partition above it if the URL names one. */
function Source({ place }: { place: Place }) {
  const { search } = useLocation();
  const navigate = useNavigate();
  const parameters = new URLSearchParams(search);
  const live = useLive<SourceCard>(sourceApi(place.connection, place.source, "summary"));
  const connection = useConnection(place.connection);
  // Opening a partition adds an entry to the browser's history; typing a filter does not.
  const change = useCallback<Change>(
    (changes, { keep = false } = {}) =>
      navigate({ search: withParameters(globalThis.location.search, changes) }, { replace: !keep }),
    [navigate],
  );
  const opened = parameters.get("partition");
  const Page = PAGE_COMPONENTS[place.page];
  const { response: card, problem } = live;
  const isRefused =
    card === null && problem !== null && ["session", "forbidden", "missing", "refused"].includes(problem.kind);
  return (
    <Frame place={place} card={card} live={live} connection={connection}>
      {isRefused ? (
        <ProblemPage problem={problem} connection={place.connection} refresh={live.refresh} />
      ) : (
        <Page
          place={place}
          card={card}
          connection={connection}
          parameters={parameters}
          change={change}
          search={search}
        />
      )}
      {opened && !isRefused && (
        <PartitionDrawer
          place={place}
          connection={connection}
          partitionKey={opened}
          search={search}
          hasOrigins={card?.pages.includes("supervisor")}
          onClose={() => change({ partition: null })}
        />
      )}
    </Frame>
  );
}

/** Keeps an error of these pages from breaking Airflow's page. */
class Guard extends (Component as typeof Component<{ children?: Content }>) {
  state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  render() {
    if (this.state.error === null) return this.props.children;
    return (
      <EmptyState
        title="This page could not be shown"
        text={String(this.state.error instanceof Error ? this.state.error.message : this.state.error)}
        icon="alert"
        role="alert"
        kind="failed"
      >
        <Button size="sm" onClick={() => globalThis.location.reload()}>
          Reload the page
        </Button>
        <Button size="sm" variant="outline" onClick={() => this.setState({ error: null })}>
          Try again
        </Button>
      </EmptyState>
    );
  }
}

/** The component that Airflow draws: a page in its navigation, or a tab of a run or of a task instance. */
function Coordination(props: Partial<RunProps>) {
  const { pathname } = useLocation();
  const { dagId, runId, ...rest } = props;
  const isTab = dagId !== undefined && runId !== undefined;
  const place = readPlace(pathname);
  return (
    <Theme>
      <Root {...(isTab ? { p: 0, h: "auto", overflow: "visible" } : {})}>
        <Guard>
          {isTab ? (
            <TaskTab dagId={dagId} runId={runId} {...rest} />
          ) : place.source === null ? (
            <Overview />
          ) : (
            <Source key={`${place.connection} ${place.source}`} place={place as Place} />
          )}
        </Guard>
      </Root>
    </Theme>
  );
}

// Airflow reads it once this module is loaded.
Object.assign(globalThis, { AirflowPlugin: Coordination });
// It loads while Airflow draws.
preloadPage(globalThis.location.pathname);
