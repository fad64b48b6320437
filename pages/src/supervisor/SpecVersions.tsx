import { Button, Stack } from "@chakra-ui/react";
import { useState } from "react";

import { useAction } from "../actions/useAction";
import { useLive } from "../api/live";
import { request } from "../api/request";
import type { ConnectionRow, Preview } from "../api/schema";
import { LiveContent } from "../components/LiveContent";
import { ProblemPart } from "../components/ProblemPart";
import { descriptionOf } from "../components/problemText";
import { Section } from "../components/Section";
import type { Change, Place } from "../types";
import { sourceApi } from "../urls";
import { PreviewRecords } from "./PreviewRecords";
import { Versions } from "./Versions";
import type { SpecHistory } from "../api/schema";

/** The versions of the spec, and records of the source with the columns that the current one gives them. */
export function SpecVersions({
  place,
  connection,
  parameters,
  change,
}: {
  place: Place;
  connection: ConnectionRow | null;
  parameters: URLSearchParams;
  change: Change;
}) {
  const live = useLive<SpecHistory>(sourceApi(place.connection, place.source, "supervisor/history"), { every: 10 });
  const { run, isBusy, problem } = useAction();
  const [preview, setPreview] = useState<Preview | null>(null);
  // It reads the source itself, so only a click requests it.
  const load = () =>
    run(async () => {
      setPreview(null);
      setPreview(await request<Preview>(sourceApi(place.connection, place.source, "supervisor/preview")));
    });
  const words = problem === null ? null : descriptionOf(problem, place.connection);
  return (
    <Section
      title="Spec"
      aside={
        connection?.may_change && (
          <Button
            size="xs"
            variant="outline"
            loading={isBusy}
            loadingText="Reading records"
            onClick={() => void load()}
          >
            Preview records
          </Button>
        )
      }
    >
      <Stack gap={4}>
        {problem !== null && words !== null && (
          <ProblemPart
            {...words}
            title={words.isRetried ? "The records could not be read" : words.title}
            text={words.isRetried ? problem.message : words.text}
            kind={problem.kind}
          />
        )}
        {preview !== null && <PreviewRecords preview={preview} onClose={() => setPreview(null)} />}
        <LiveContent live={live} what="versions of the spec" connection={place.connection} isPart rows={3}>
          {({ versions }) => (
            <Versions key="versions" place={place} versions={versions} parameters={parameters} change={change} />
          )}
        </LiveContent>
      </Stack>
    </Section>
  );
}
