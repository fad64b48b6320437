import { Flex, Link, Stack, Text } from "@chakra-ui/react";

import { addressOf } from "../api/request";
import type { JobFacts } from "../api/schema";
import { Chip } from "../components/Chip";
import { CopyButton } from "../components/CopyButton";
import { Icon } from "../components/Icon";
import { JOB_STATES } from "../states";

export function Job({ job }: { job: JobFacts | null }) {
  if (job === null)
    return (
      <Text as="span" color="fg.muted">
        –
      </Text>
    );
  return (
    <Stack gap={0.5} minW={0}>
      <Flex gap={2} align="center">
        <Chip state={job.state} states={JOB_STATES} />
        {job.ui_url && (
          <Link href={addressOf(job.ui_url)} target="_blank" rel="noopener noreferrer" color="blue.fg" fontSize="xs">
            {"Spark UI "}
            <Icon name="link" size={3} />
          </Link>
        )}
      </Flex>
      {job.application_id && (
        <Flex align="center" fontSize="xs" color="fg.muted" minW={0}>
          <Text truncate minW={0} title={job.application_id}>
            {job.application_id}
          </Text>
          <CopyButton text={job.application_id} label="Copy the id of the application" />
        </Flex>
      )}
      {job.stop_reason && (
        <Text fontSize="xs" color="orange.fg" overflowWrap="anywhere">
          {`stop requested: ${job.stop_reason}`}
        </Text>
      )}
    </Stack>
  );
}
