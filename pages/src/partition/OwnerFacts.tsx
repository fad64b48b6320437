import { Flex, Stack, Text } from "@chakra-ui/react";

import type { Owner as ApiOwner } from "../api/schema";
import { Icon } from "../components/Icon";
import { Owner } from "../components/Owner";
import { PageLink } from "../components/PageLink";
import { Shortened } from "../components/Shortened";
import { ownerLabel } from "../format/text";
import { taskPath } from "../urls";
import { Copied } from "./Copied";

/** The owner of a partition: its task try, its log, and its full name. */
export function OwnerFacts({ owner }: { owner: ApiOwner }) {
  const path = taskPath(owner);
  return (
    <Stack gap={0.5} minW={0}>
      {path ? (
        <Flex gap={2} align="center" wrap="wrap">
          <Owner owner={owner} />
          <PageLink to={path} fontSize="xs" data-log>
            {"Task instance and log "}
            <Icon name="link" size={3} />
          </PageLink>
        </Flex>
      ) : (
        <Shortened text={ownerLabel(owner)} />
      )}
      {owner.dag_id && (
        <Text fontSize="xs" color="fg.muted" overflowWrap="anywhere">
          {`DAG ${owner.dag_id}, run ${owner.run_id}, host ${owner.host}`}
        </Text>
      )}
      <Copied text={owner.name} label="Copy the name of the owner" />
    </Stack>
  );
}
