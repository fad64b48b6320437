import { Box, Grid, Text } from "@chakra-ui/react";

import type { Content } from "../types";

/** A list of names and values, in two columns if there is room. */
export function FactList({ facts }: { facts: (false | null | "" | [string, Content])[] }) {
  return (
    <Grid
      as="dl"
      templateColumns={{ base: "1fr", sm: "minmax(110px, min(30%, 190px)) 1fr" }}
      columnGap={4}
      rowGap={{ base: 0, sm: 1.5 }}
      fontSize="sm"
      m={0}
    >
      {facts
        .filter((fact) => fact !== null && fact !== false && fact !== "")
        .flatMap(([name, value]) => [
          <Text as="dt" key={`${name}?`} color="fg.muted">
            {name}
          </Text>,
          <Box as="dd" key={name} minW={0} m={0} mb={{ base: 2, sm: 0 }} overflowWrap="anywhere">
            {value}
          </Box>,
        ])}
    </Grid>
  );
}
