import { Badge, Box, CloseButton, Flex, Span, Stack, Text } from "@chakra-ui/react";

import type { Preview, PreviewColumn, PreviewRow } from "../api/schema";
import { SmallTable } from "../table/SmallTable";
import type { Content } from "../types";
import { columnTitle, orderedColumns, summaryOf, valueText } from "./previewTable";

type Numbered = PreviewRow & { number: number };

/** Records of the source with the columns that the current spec gives them, and why some are bad. */
export function PreviewRecords({ preview, onClose }: { preview: Preview; onClose: () => void }) {
  const rows = preview.rows.map((row, number): Numbered => ({ ...row, number }));
  return (
    <Box
      as="section"
      aria-label="Preview of records"
      borderWidth={1}
      borderColor="border.emphasized"
      borderRadius="md"
      p={3}
      bg="bg"
    >
      <Flex justify="space-between" align="flex-start" gap={2} mb={2}>
        <Text fontSize="sm" role="status">
          {rows.length === 0 ? preview.nothing : summaryOf(preview)}
        </Text>
        <CloseButton size="2xs" aria-label="Close the preview" onClick={onClose} />
      </Flex>
      {preview.notes.length > 0 && (
        <Stack as="ul" ps={4} gap={1} mb={3} fontSize="xs" color="fg.muted">
          {preview.notes.map((note) => (
            <Box as="li" key={note} overflowWrap="anywhere">
              {note}
            </Box>
          ))}
        </Stack>
      )}
      {rows.length > 0 && (
        <SmallTable
          label="Records"
          rows={rows}
          keyOf={(row: Numbered) => String(row.number)}
          columns={[
            { name: "record", title: "Record", maxW: "260px", cell: recordOf },
            ...orderedColumns([...preview.columns]).map((column) => ({
              name: column.name,
              title: columnTitle(column),
              maxW: "300px",
              cell: (row: Numbered) => valueOf(row, column),
            })),
          ]}
        />
      )}
    </Box>
  );
}

function recordOf({ record, error }: Numbered): Content {
  if (error === "") return record;
  return (
    <Box minW="160px">
      {record}
      <Badge variant="subtle" colorPalette="red" ms={2}>
        bad
      </Badge>
      <Text fontSize="xs" color="red.fg" overflowWrap="anywhere">
        {error}
      </Text>
    </Box>
  );
}

function valueOf({ values }: Numbered, { name, origin }: PreviewColumn): Content {
  const text = valueText(values[name]);
  if (text !== null) {
    return (
      <Span fontFamily="mono" fontSize="xs" overflowWrap="anywhere">
        {text}
      </Span>
    );
  }
  return (
    <Span fontSize="xs" color="fg.muted">
      {origin === "computed" ? "needs Spark" : name in values ? "null" : "–"}
    </Span>
  );
}
