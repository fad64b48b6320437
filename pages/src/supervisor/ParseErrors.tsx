import { Code, Text } from "@chakra-ui/react";

import { useLive } from "../api/live";
import { Instant } from "../components/Instant";
import { LiveContent } from "../components/LiveContent";
import { Section } from "../components/Section";
import { plural } from "../format/text";
import { SmallTable } from "../table/SmallTable";
import type { ParseErrors as BadRecords } from "../api/schema";
import type { Place } from "../types";
import { sourceApi } from "../urls";
import { recordOf } from "./records";

type BadRecord = { at: string; stage: string | null; error: string };

/** The bad records that the jobs reported last. */
export function ParseErrors({ place }: { place: Place }) {
  const live = useLive<BadRecords>(sourceApi(place.connection, place.source, "supervisor/parse-errors"), {
    every: 10,
  });
  return (
    <Section title="Bad records">
      <LiveContent live={live} what="bad records" connection={place.connection} isPart rows={2}>
        {({ count, dead_letter_path: path, errors }) => [
          <Text key="count" fontSize="sm" color="fg.muted" mb={errors.length === 0 ? 0 : 2} overflowWrap="anywhere">
            {count === 0 && errors.length === 0 ? "None." : `${plural(count, "bad record")}. `}
            {count > 0 && path !== null && `Dead letters: ${path}.`}
          </Text>,
          errors.length > 0 && (
            <SmallTable
              key="errors"
              label="Bad records"
              rows={errors.map((error, index) => ({ ...(error as BadRecord), index }))}
              keyOf={(error) => String(error.index)}
              columns={[
                { name: "at", title: "At", width: "210px", cell: (error) => <Instant instant={error.at} /> },
                { name: "stage", title: "Stage", width: "100px", cell: (error) => error.stage ?? "–" },
                {
                  name: "error",
                  title: "Error",
                  maxW: "none",
                  cell: (error) => <Text overflowWrap="anywhere">{error.error}</Text>,
                },
                {
                  name: "record",
                  title: "Record",
                  maxW: "none",
                  cell: (error) => (
                    <Code size="sm" variant="surface" overflowWrap="anywhere">
                      {recordOf(error)}
                    </Code>
                  ),
                },
              ]}
            />
          ),
        ]}
      </LiveContent>
    </Section>
  );
}
