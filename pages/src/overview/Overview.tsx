/** The overview: every source that the user may view, or every supervisor, those with problems first. */

import { Button, Flex, Heading, Input, InputGroup, Text } from "@chakra-ui/react";
import { useCallback, useState } from "react";
import { useLocation, useNavigate } from "react-router-dom";

import { useLive } from "../api/live";
import type { ConnectionRow, Connections } from "../api/schema";
import { Choice } from "../chart/Choice";
import { EmptyState } from "../components/EmptyState";
import { Icon } from "../components/Icon";
import { Loading } from "../components/Loading";
import { ProblemPage } from "../components/ProblemPage";
import { useTypedText } from "../components/useTypedText";
import { Freshness } from "../frame/Freshness";
import { useTitle } from "../frame/shared";
import { connectionRank, isUnhealthy } from "../states";
import type { Found, Live, Parameter } from "../types";
import { withParameters } from "../urls";
import { Connection } from "./Connection";
import { rememberView, sortingOf, sortTextOf, viewOf } from "./choices";

/** The page. */
export function Overview() {
  const { search } = useLocation();
  const navigate = useNavigate();
  const parameters = new URLSearchParams(search);
  const only = parameters.get("connection");
  const show = parameters.get("show") === "supervisors" ? "supervisors" : "sources";
  const view = viewOf(parameters, globalThis.localStorage);
  const live = useLive<Connections>("connections", { every: 30 });
  const [known, onLive] = useResponses();
  const worst = known.find(([, each]) => each.problem !== null) ?? known[0];
  useTitle(null);

  const change = (changes: Record<string, Parameter>) =>
    navigate({ search: withParameters(globalThis.location.search, changes) }, { replace: true });
  const [text, setText] = useTypedText(parameters.get("q") ?? "", (typed) => change({ q: typed }));
  const responses = new Map(known.map(([id, { response }]) => [id, response]));

  const rank = (each: ConnectionRow) => {
    const response = responses.get(each.connection_id);
    return connectionRank(each, response?.sources ?? [], response?.supervisors?.some(isUnhealthy));
  };
  const connections = (live.response?.connections ?? [])
    .filter((each) => only === null || each.connection_id === only)
    .sort((a, b) => rank(a) - rank(b));
  return (
    <>
      <Flex justify="space-between" align="center" gap={3} mb={4} wrap="wrap">
        <Flex columnGap={4} rowGap={2} align="center" wrap="wrap">
          <Heading as="h1" size="xl">
            Ingestion
          </Heading>
          <Choice
            label="Show"
            value={show}
            options={[
              ["sources", "Sources"],
              ["supervisors", "Supervisors"],
            ]}
            onChange={(name) => change({ show: name === "sources" ? null : name, sort: null })}
          />
          {show === "sources" && (
            <Choice
              label="View"
              value={view}
              options={[
                ["cards", "Cards"],
                ["table", "Table"],
              ]}
              onChange={(name) => {
                rememberView(name, globalThis.localStorage);
                change({ as: name === "table" ? name : null, sort: null });
              }}
            />
          )}
        </Flex>
        <Flex gap={3} align="center" flex={{ base: "1 1 100%", md: "0 1 auto" }}>
          <InputGroup startElement={<Icon name="search" />} maxW={{ md: "260px" }}>
            <Input
              size="sm"
              type="search"
              placeholder="Find a source"
              aria-label="Find a source"
              value={text}
              onChange={(event) => setText(event.target.value)}
            />
          </InputGroup>
          <Freshness live={worst?.[1] ?? live} />
        </Flex>
      </Flex>
      {only !== null && (
        <Flex mb={3} gap={2} align="center" fontSize="sm" color="fg.muted">
          <Text as="span" minW={0} overflowWrap="anywhere">
            {`Connection ${only} only`}
          </Text>
          <Button flexShrink={0} size="2xs" variant="outline" onClick={() => change({ connection: null })}>
            Show all
          </Button>
        </Flex>
      )}
      {live.response === null ? (
        live.problem === null ? (
          <Loading what="connections" rows={4} height={24} />
        ) : (
          <ProblemPage problem={live.problem} nextAt={live.nextAt} refresh={live.refresh} />
        )
      ) : connections.length === 0 ? (
        <EmptyState
          title="You may not view any coordination connection"
          text="Leases are kept in the store of a connection of type “coordination”. Create one under Admin, Connections, or ask an Airflow administrator for “can read” on Connections."
          icon="plug"
          kind="none"
        />
      ) : (
        connections.map((connection: ConnectionRow) => (
          <Connection
            key={`${show} ${connection.connection_id}`}
            connection={connection}
            show={show}
            search={text}
            choices={{
              view,
              sorting: sortingOf(parameters),
              onSort: (sorting) => change({ sort: sortTextOf(sorting) }),
            }}
            onLive={onLive}
            isAlone={connections.length === 1}
          />
        ))
      )}
    </>
  );
}

/**
 * Keep the latest response of each connection; return them, and the function that sets one: null once the connection is
 * gone.
 */
function useResponses(): [[string, Live<Found>][], (connection: string, live: Live<Found> | null) => void] {
  const [known, setKnown] = useState(new Map<string, Live<Found>>());
  const note = useCallback(
    (id: string, live: Live<Found> | null) =>
      setKnown((before) => {
        const after = new Map(before);
        if (live === null) after.delete(id);
        else after.set(id, live);
        return after;
      }),
    [],
  );
  return [[...known], note];
}
