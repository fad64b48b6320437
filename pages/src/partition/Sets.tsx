import { Box, Flex, Stack, Text } from "@chakra-ui/react";

import { Chip } from "../components/Chip";
import { PageLink } from "../components/PageLink";
import { RelativeTime } from "../components/RelativeTime";
import { Section } from "../components/Section";
import { SET_STATES } from "../states";
import type { AcknowledgmentSet, Place } from "../types";
import { originTarget, pathOf } from "../urls";
import { Copied } from "./Copied";

/** @param props `hasOrigins` is whether the source has a supervisor, whose page shows the origin of a batch */
export function Sets({
  sets,
  place,
  hasOrigins = false,
}: {
  sets: AcknowledgmentSet[];
  place: Place;
  hasOrigins?: boolean;
}) {
  return (
    <Section title="Acknowledgment sets">
      <Stack gap={2}>
        {sets.map((set) => {
          const owed = Object.entries(set.references)
            .filter(([, count]) => count > 0)
            .map(([handle]) => handle);
          return (
            <Box key={set.set_id} borderWidth={1} borderColor="border" borderRadius="md" p={2} fontSize="sm">
              <Flex gap={2} align="center" wrap="wrap">
                <Chip state={set.state} states={SET_STATES} />
                {set.state === "PENDING" ? (
                  <Text>
                    {"expires "}
                    <RelativeTime instant={set.expires_at} />
                  </Text>
                ) : (
                  set.ended_at && (
                    <Text>
                      {"ended "}
                      <RelativeTime instant={set.ended_at} />
                    </Text>
                  )
                )}
                <PageLink to={{ search: "", pathname: pathOf({ ...place, page: "acknowledgments" }) }} fontSize="xs">
                  All pending sets
                </PageLink>
                {hasOrigins && (
                  <PageLink to={originTarget(place, set.batch_id)} fontSize="xs" data-origin-link>
                    Origin and sinks
                  </PageLink>
                )}
              </Flex>
              {owed.length > 0 && <Text overflowWrap="anywhere">{`Missing handles: ${owed.join(", ")}`}</Text>}
              {set.reason && (
                <Text color="fg.muted" overflowWrap="anywhere">
                  {set.reason}
                </Text>
              )}
              <Copied text={set.set_id} label="Copy the id of the set" />
            </Box>
          );
        })}
      </Stack>
    </Section>
  );
}
