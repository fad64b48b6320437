import { Grid } from "@chakra-ui/react";

import { useLive } from "../api/live";
import { LiveContent } from "../components/LiveContent";
import { Warning } from "../components/Warning";
import type { JsonObject, Place } from "../types";
import { sourceApi } from "../urls";
import { Json } from "./Json";
import type { SpecDetail } from "../api/schema";

/** A version as it was submitted, and next to it with every default. */
export function Texts({ place, version, spec }: { place: Place; version: number; spec: JsonObject }) {
  const path = `supervisor/spec?version=${version}`;
  const live = useLive<SpecDetail>(sourceApi(place.connection, place.source, path), { every: 30 });
  return (
    <Grid templateColumns={{ base: "minmax(0, 1fr)", xl: "repeat(2, minmax(0, 1fr))" }} gap={4}>
      <Json title="As submitted, without secrets" label={`Version ${version} of the spec`} value={spec} />
      <LiveContent live={live} what="effective spec" connection={place.connection} isPart rows={3}>
        {({ effective, problem }) =>
          effective === null ? (
            <Warning key="problem" level="error" topic="spec">
              {problem}
            </Warning>
          ) : (
            <Json
              key="effective"
              title="With all defaults"
              label={`Version ${version} of the spec, with all defaults`}
              value={effective}
            />
          )
        }
      </LiveContent>
    </Grid>
  );
}
