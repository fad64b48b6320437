import { Box, Text } from "@chakra-ui/react";

import { Icon } from "../components/Icon";
import { PageLink } from "../components/PageLink";
import { ROUTE } from "../urls";

/** The path from the overview to a source. */
export function Path({ connection, source }: { connection: string; source: string }) {
  return (
    <Box
      as="nav"
      aria-label="Path"
      fontSize="sm"
      color="fg.muted"
      display="flex"
      gap={1.5}
      alignItems="center"
      minW={0}
    >
      <PageLink to={ROUTE}>Ingestion</PageLink>
      <Icon name="chevron" size={3} />
      <PageLink to={`${ROUTE}?connection=${encodeURIComponent(connection)}`} minW={0} truncate>
        {connection}
      </PageLink>
      <Icon name="chevron" size={3} />
      <Text as="span" truncate aria-current="location" title={source} color="fg">
        {source}
      </Text>
    </Box>
  );
}
