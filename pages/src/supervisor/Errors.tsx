import { Badge, Box, Flex, Stack, Strong, Text } from "@chakra-ui/react";

import type { ErrorEvent } from "../api/schema";
import { Instant } from "../components/Instant";
import { PageLink } from "../components/PageLink";
import { Section } from "../components/Section";
import { Shortened } from "../components/Shortened";
import { SmallTable } from "../table/SmallTable";
import { withParameters } from "../urls";

/** The latest errors, the latest first. */
export function Errors({ errors, search }: { errors: ErrorEvent[]; search: string }) {
  return (
    <Section title="Errors">
      {errors.length === 0 ? (
        <Text fontSize="sm" color="fg.muted">
          No errors.
        </Text>
      ) : (
        <SmallTable
          label="Errors"
          rows={errors}
          keyOf={(error) => `${error.at} ${error.error_class} ${error.owner} ${error.partition}`}
          columns={[
            { name: "at", title: "At", width: "210px", cell: (error) => <Instant instant={error.at} /> },
            {
              name: "error",
              title: "Error",
              maxW: "none",
              cell: (error) => (
                <Box minW={0}>
                  <Flex gap={2} align="center" wrap="wrap">
                    <Strong>{error.error_class}</Strong>
                    {error.is_stream_error && (
                      <Badge size="xs" colorPalette="orange" variant="subtle">
                        source error
                      </Badge>
                    )}
                  </Flex>
                  <Text color="fg.muted" overflowWrap="anywhere" whiteSpace="pre-wrap">
                    {error.message}
                  </Text>
                </Box>
              ),
            },
            {
              name: "where",
              title: "Where",
              maxW: "360px",
              cell: (error) => (
                <Stack gap={0.5} minW={0}>
                  {error.partition && (
                    <PageLink
                      to={{ search: withParameters(search, { partition: error.partition }) }}
                      minW={0}
                      aria-label={error.partition}
                    >
                      <Shortened text={error.partition} tail={20} />
                    </PageLink>
                  )}
                  {error.owner && <Shortened text={error.owner} tail={20} color="fg.muted" fontSize="xs" />}
                  {!error.partition && !error.owner && <Text color="fg.muted">supervisor</Text>}
                </Stack>
              ),
            },
          ]}
        />
      )}
    </Section>
  );
}
