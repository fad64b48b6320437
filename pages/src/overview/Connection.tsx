import { Box, Flex, Heading, Text } from "@chakra-ui/react";
import { useEffect } from "react";

import { useLive } from "../api/live";
import type { ConnectionRow } from "../api/schema";
import { LiveContent } from "../components/LiveContent";
import { ProblemPart } from "../components/ProblemPart";
import { plural } from "../format/text";
import type { Found, Live } from "../types";
import { Sources } from "./Sources";
import { Supervisors } from "./Supervisors";
import type { OverviewChoices } from "./choices";

export function Connection({
  connection,
  show,
  search,
  choices,
  isAlone,
  onLive,
}: {
  connection: ConnectionRow;
  show: "sources" | "supervisors";
  search: string;
  choices: OverviewChoices;
  isAlone: boolean;
  onLive: (connection: string, live: Live<Found> | null) => void;
}) {
  const live = useLive<Found>(
    connection.problem === null ? `connections/${encodeURIComponent(connection.connection_id)}/${show}` : null,
  );
  const { problem, nextAt, response } = live;
  const id = connection.connection_id;
  useEffect(() => onLive(id, { problem, nextAt, response }), [problem, nextAt, response, id, onLive]);
  useEffect(() => () => onLive(id, null), [id, onLive]);
  return (
    <Box as="section" aria-label={`Connection ${id}`} mb={6}>
      <Flex align="baseline" gap={2} mb={2}>
        <Heading as="h2" size="sm" color="fg.muted" fontWeight="semibold" overflowWrap="anywhere" minW={0}>
          {id}
        </Heading>
        {!connection.may_change && (
          <Text fontSize="xs" color="fg.muted" flexShrink={0}>
            read only
          </Text>
        )}
        {response && !isAlone && (
          <Text fontSize="xs" color="fg.muted" flexShrink={0}>
            {plural(response[show]?.length ?? 0, show.slice(0, -1))}
          </Text>
        )}
      </Flex>
      {connection.problem !== null ? (
        <ProblemPart
          title="This connection cannot be used"
          text={connection.problem}
          icon="plug"
          kind="refused"
          topic="connection"
        />
      ) : (
        <LiveContent live={live} what={show} isPart connection={id} rows={3}>
          {(found) =>
            show === "sources" ? (
              <Sources key={show} connection={id} cards={found.sources ?? []} search={search} choices={choices} />
            ) : (
              <Supervisors
                key={show}
                connection={connection}
                statuses={found.supervisors ?? []}
                search={search}
                choices={choices}
                refresh={live.refresh}
              />
            )
          }
        </LiveContent>
      )}
    </Box>
  );
}
