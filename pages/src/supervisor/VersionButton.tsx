import { Badge, chakra, Flex, Strong, Text } from "@chakra-ui/react";

import type { SpecFacts } from "../api/schema";
import { Instant } from "../components/Instant";

/** The consequences of a change of the spec. */
const CONSEQUENCES: Record<string, string> = {
  NONE: "Nothing changed",
  COSMETIC: "Jobs continued: only descriptions changed",
  SUPERVISION: "Jobs continued: only the supervisor uses the change",
  JOBS: "Jobs handed over to new jobs of this version",
};

export function VersionButton({
  version,
  isChosen,
  isLatest,
  onChoose,
}: {
  version: SpecFacts;
  isChosen: boolean;
  isLatest: boolean;
  onChoose: () => void;
}) {
  return (
    <chakra.button
      type="button"
      aria-pressed={isChosen}
      data-version={version.version}
      w="full"
      textAlign="start"
      cursor="pointer"
      borderWidth={1}
      borderColor={isChosen ? "border.info" : "border.emphasized"}
      bg={isChosen ? "bg.muted" : "bg"}
      borderRadius="md"
      px={3}
      py={2}
      fontSize="sm"
      onClick={onChoose}
    >
      <Flex gap={2} align="center" wrap="wrap">
        <Strong>{`Version ${version.version}`}</Strong>
        {version.is_termination && (
          <Badge size="xs" variant="subtle" colorPalette="gray">
            terminated
          </Badge>
        )}
        {isLatest && !version.is_termination && (
          <Badge size="xs" variant="subtle" colorPalette="green">
            in effect
          </Badge>
        )}
      </Flex>
      <Text color="fg.muted" fontSize="xs">
        <Instant instant={version.at} />
        {version.by && ` by ${version.by}`}
        {version.is_from_file && " from a file"}
      </Text>
      {version.reason && <Text overflowWrap="anywhere">{version.reason}</Text>}
      {version.change !== null && version.version > 1 && (
        <Text color="fg.muted" fontSize="xs">
          {CONSEQUENCES[version.change]}
        </Text>
      )}
    </chakra.button>
  );
}
