/** The versions of a supervisor's spec: author, reason and changes of each, and its full text. */

import { Badge, Box, Flex, Grid, NativeSelect, Span, Stack, Strong, Text, chakra } from "@chakra-ui/react";
import { useMemo } from "react";

import { useLive } from "./live";
import { LiveContent } from "./problems";
import { SmallTable, PHONE_WIDTH } from "./small_table";
import { changesBetween } from "./spec_changes";
import { plural } from "./text";
import { sourceApi } from "./urls";
import { Warning } from "./warning";
import { CopyButton, Instant, Section } from "./widgets";
import type { SpecFacts } from "./schema";
import type { Place, Change } from "./types";

/** the consequences of a change of the spec */
const CONSEQUENCES: Record<string, string> = {
  NONE: "Nothing changed",
  COSMETIC: "Jobs continued: only descriptions changed",
  SUPERVISION: "Jobs continued: only the supervisor uses the change",
  JOBS: "Jobs handed over to new jobs of this version",
};

export function SpecVersions({
  place,
  parameters,
  change,
}: {
  place: Place;
  parameters: URLSearchParams;
  change: Change;
}) {
  const live = useLive(sourceApi(place.connection, place.source, "supervisor/history"), { every: 10 });
  return (
    <Section title="Spec">
      <LiveContent live={live} what="versions of the spec" connection={place.connection} isPart rows={3}>
        {({ versions }) => (
          <Versions key="versions" place={place} versions={versions} parameters={parameters} change={change} />
        )}
      </LiveContent>
    </Section>
  );
}

/** @param props the latest first; the URL has the selected version and the one that it is compared with */
function Versions({
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

function VersionButton({
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

/** The differences of two versions, one row for each field. */
function Changes({
  previous,
  chosen,
  others,
  onCompare,
}: {
  previous: SpecFacts;
  chosen: SpecFacts;
  others: SpecFacts[];
  onCompare: (version: string) => void;
}) {
  const changes = useMemo(() => changesBetween(previous.spec, chosen.spec), [previous, chosen]);
  return (
    <Box data-changes={changes.length}>
      <Flex gap={2} align="center" wrap="wrap" mb={2} fontSize="sm">
        {changes.length === 0
          ? `Version ${chosen.version} is the same as`
          : `${plural(changes.length, "field differs", "fields differ")} between version ${chosen.version} and`}
        <NativeSelect.Root size="xs" w="auto">
          <NativeSelect.Field
            value={String(previous.version)}
            aria-label="Compare with version"
            onChange={(event) => onCompare(event.target.value)}
          >
            {others.map(({ version }) => (
              <option key={version} value={String(version)}>
                {`version ${version}`}
              </option>
            ))}
          </NativeSelect.Field>
          <NativeSelect.Indicator />
        </NativeSelect.Root>
      </Flex>
      {changes.length > 0 && (
        <SmallTable
          label="Differences"
          rows={changes}
          keyOf={({ path }) => path}
          narrowBelow={PHONE_WIDTH}
          columns={[
            { name: "field", title: "Field", maxW: "none", cell: ({ path }) => <Value text={path} isStrong /> },
            {
              name: "before",
              title: `Version ${previous.version}`,
              maxW: "none",
              cell: ({ before }) => <Value text={before} />,
            },
            {
              name: "after",
              title: `Version ${chosen.version}`,
              maxW: "none",
              cell: ({ after }) => <Value text={after} />,
            },
          ]}
        />
      )}
    </Box>
  );
}

function Value({ text, isStrong = false }: { text: string | null; isStrong?: boolean }) {
  if (text === null)
    return (
      <Span color="fg.muted" fontSize="xs">
        not set
      </Span>
    );
  return (
    <Span fontFamily="mono" fontSize="xs" overflowWrap="anywhere" fontWeight={isStrong ? "semibold" : undefined}>
      {text}
    </Span>
  );
}

/** A version as it was submitted, and next to it with every default. */
function Texts({ place, version, spec }: { place: Place; version: number; spec: Record<string, any> }) {
  const path = `supervisor/spec?version=${version}`;
  const live = useLive(sourceApi(place.connection, place.source, path), { every: 30 });
  return (
    <Grid templateColumns={{ base: "minmax(0, 1fr)", xl: "repeat(2, minmax(0, 1fr))" }} gap={4}>
      <Json title="As submitted, secrets hidden" label={`Version ${version} of the spec`} value={spec} />
      <LiveContent live={live} what="effective spec" connection={place.connection} isPart rows={3}>
        {({ effective, problem }) =>
          effective === null ? (
            <Warning key="problem" level="error" topic="spec">
              {problem}
            </Warning>
          ) : (
            <Json
              key="effective"
              title="With every default"
              label={`Version ${version} of the spec, with every default`}
              value={effective}
            />
          )
        }
      </LiveContent>
    </Grid>
  );
}

function Json({ title, label, value }: { title: string; label: string; value: Record<string, any> }) {
  const text = useMemo(() => JSON.stringify(value, null, 2), [value]);
  return (
    <Box minW={0}>
      <Flex justify="space-between" align="center" mb={1}>
        <Text fontSize="xs" color="fg.muted">
          {title}
        </Text>
        <CopyButton text={text} label={`Copy ${label.toLowerCase()}`} />
      </Flex>
      <Box
        as="pre"
        tabIndex={0}
        role="region"
        aria-label={label}
        fontSize="xs"
        fontFamily="mono"
        borderWidth={1}
        borderColor="border.emphasized"
        borderRadius="md"
        bg="bg.muted"
        p={3}
        maxH="460px"
        overflow="auto"
        dir="ltr"
      >
        {text}
      </Box>
    </Box>
  );
}
