import { Box, Grid, Stack, Text } from "@chakra-ui/react";

import type { SpecFacts } from "../api/schema";
import type { Change, Place } from "../types";
import { Changes } from "./Changes";
import { Texts } from "./Texts";
import { VersionButton } from "./VersionButton";

/** @param props the latest first; the URL has the selected version and the one that it is compared with */
export function Versions({
  place,
  versions,
  parameters,
  change,
}: {
  place: Place;
  versions: SpecFacts[];
  parameters: URLSearchParams;
  change: Change;
}) {
  const named = (name: string) => versions.find((each) => each.version === Number(parameters.get(name)));
  const chosen = named("version") ?? versions[0];
  const others = versions.filter((each) => each !== chosen && each.spec !== null);
  const against = named("against");
  const previous = others.find((each) => each === against) ?? others.find((each) => each.version < chosen.version);
  return (
    <Grid templateColumns={{ base: "minmax(0, 1fr)", lg: "minmax(240px, 1fr) minmax(0, 4fr)" }} gap={4}>
      <Stack as="ul" aria-label="Versions" listStyleType="none" gap={1} maxH="460px" overflowY="auto" p="2px">
        {versions.map((each) => (
          <Box as="li" key={each.version}>
            <VersionButton
              version={each}
              isChosen={each === chosen}
              isLatest={each === versions[0]}
              onChoose={() => change({ version: each === versions[0] ? null : String(each.version), against: null })}
            />
          </Box>
        ))}
      </Stack>
      {chosen.spec === null ? (
        <Text fontSize="sm" color="fg.muted">
          This version terminated the supervisor. It has no spec.
        </Text>
      ) : (
        <Stack minW={0} gap={4}>
          {previous !== undefined && (
            <Changes
              previous={previous}
              chosen={chosen}
              others={others}
              onCompare={(version) => change({ version: String(chosen.version), against: version })}
            />
          )}
          <Texts place={place} version={chosen.version} spec={chosen.spec} />
        </Stack>
      )}
    </Grid>
  );
}
