import { Badge, Box, Flex, Stack, Text } from "@chakra-ui/react";

import type { LandedFacts } from "../api/schema";
import { Section } from "../components/Section";
import { plural } from "../format/text";
import { Copied } from "./Copied";

export function Landed({ batches }: { batches: LandedFacts[] }) {
  return (
    <Section
      title="Landed batches, not delivered"
      aside={
        <Text fontSize="xs" color="fg.muted">
          {plural(batches.length, "batch", "batches")}
        </Text>
      }
    >
      <Stack gap={2}>
        {batches.map((batch) => (
          <Box
            key={batch.batch_id + batch.start}
            borderWidth={1}
            borderColor="border"
            borderRadius="md"
            p={2}
            fontSize="sm"
          >
            <Flex justify="space-between" gap={2} wrap="wrap">
              <Badge
                variant="subtle"
                colorPalette={{ rejected: "red", acknowledged: "green", waiting: "purple" }[batch.state] ?? "gray"}
              >
                {batch.state}
              </Badge>
              <Text fontVariantNumeric="tabular-nums">{plural(batch.records, "record")}</Text>
            </Flex>
            <Copied text={batch.batch_id} label="Copy the id of the batch" />
            <Text fontFamily="mono" fontSize="xs" color="fg.muted" overflowWrap="anywhere">
              {`(${batch.start || "start"}, ${batch.end}]`}
            </Text>
            {batch.file && <Copied text={batch.file} label="Copy the location of the file" />}
          </Box>
        ))}
      </Stack>
    </Section>
  );
}
