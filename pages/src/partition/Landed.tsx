import { Badge, Box, Flex, Stack, Text } from "@chakra-ui/react";

import type { LandedFacts } from "../api/schema";
import { PageLink } from "../components/PageLink";
import { Section } from "../components/Section";
import { plural } from "../format/text";
import type { Place } from "../types";
import { originTarget } from "../urls";
import { Copied } from "./Copied";

/** @param props `place` is given if the source has a supervisor, whose page shows the origin of a batch */
export function Landed({ batches, place = null }: { batches: LandedFacts[]; place?: Place | null }) {
  return (
    <Section
      title="Batches that are landed and not delivered"
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
            {place !== null && (
              <PageLink to={originTarget(place, batch.batch_id)} fontSize="xs" data-origin-link>
                Origin and sinks
              </PageLink>
            )}
            {batch.file && <Copied text={batch.file} label="Copy the location of the file" />}
          </Box>
        ))}
      </Stack>
    </Section>
  );
}
