import { Box, Text } from "@chakra-ui/react";

import type { Owner as ApiOwner } from "../api/schema";
import { ownerLabel } from "../format/text";
import type { Styles } from "../types";
import { taskPath } from "../urls";
import { PageLink } from "./PageLink";
import { Shortened } from "./Shortened";

/** The owner of a lease: a link to its task try and log, if it is a task. */
export function Owner({ owner, withHost = false, ...rest }: { owner: ApiOwner | null; withHost?: boolean } & Styles) {
  if (!owner)
    return (
      <Text as="span" color="fg.muted" {...rest}>
        –
      </Text>
    );
  const path = taskPath(owner);
  const label = ownerLabel(owner);
  const shown = <Shortened text={label} title={owner.name} tail={8} {...rest} />;
  const name =
    path === null ? (
      shown
    ) : (
      <PageLink to={path} title={owner.name} minW={0} aria-label={`${label}: log of ${owner.name}`}>
        {shown}
      </PageLink>
    );
  if (!withHost || !owner.host) return name;
  return (
    <Box minW={0}>
      <Box display="flex" minW={0}>
        {name}
      </Box>
      <Text color="fg.muted" fontSize="xs" truncate title={`${owner.dag_id} on ${owner.host}`}>
        {`${owner.dag_id} · ${owner.host}`}
      </Text>
    </Box>
  );
}
