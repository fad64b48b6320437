import { Box, Flex, NativeSelect, Span } from "@chakra-ui/react";
import { useMemo } from "react";

import type { SpecFacts } from "../api/schema";
import { plural } from "../format/text";
import { PHONE_WIDTH, SmallTable } from "../table/SmallTable";
import { changesBetween } from "./specChanges";

/** The differences of two versions, one row for each field. */
export function Changes({
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
