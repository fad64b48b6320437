import { chakra, Span, Text } from "@chakra-ui/react";

import { useNow, useZone } from "../format/clock";
import { formatInstant, relative } from "../format/time";
import type { Styles } from "../types";

/** An instant in the selected time zone, and its age. */
export function Instant({ instant, withAge = true, ...rest }: { instant: string | null; withAge?: boolean } & Styles) {
  const now = useNow();
  const zone = useZone();
  if (!instant)
    return (
      <Text as="span" color="fg.muted" {...rest}>
        –
      </Text>
    );
  return (
    <chakra.time dateTime={instant} title={`${instant} (UTC)`} {...rest}>
      <Span whiteSpace="nowrap">{formatInstant(instant, zone)}</Span>
      {withAge && (
        <Span color="fg.muted" whiteSpace="nowrap">
          {` ${relative(instant, now)}`}
        </Span>
      )}
    </chakra.time>
  );
}
