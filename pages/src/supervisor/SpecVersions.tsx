import { useLive } from "../api/live";
import { LiveContent } from "../components/LiveContent";
import { Section } from "../components/Section";
import type { Change, Place } from "../types";
import { sourceApi } from "../urls";
import { Versions } from "./Versions";
import type { SpecHistory } from "../api/schema";

export function SpecVersions({
  place,
  parameters,
  change,
}: {
  place: Place;
  parameters: URLSearchParams;
  change: Change;
}) {
  const live = useLive<SpecHistory>(sourceApi(place.connection, place.source, "supervisor/history"), { every: 10 });
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
