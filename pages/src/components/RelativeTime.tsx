import { chakra, Text } from "@chakra-ui/react";

import { useNow, useZone } from "../format/clock";
import { formatInstant, relative } from "../format/time";
import type { Styles } from "../types";

/** An instant relative to now, which is updated each second. */
export function RelativeTime({ instant, short, ...rest }: { instant: string | null; short?: boolean } & Styles) {
  const now = useNow();
  const zone = useZone();
  if (!instant)
    return (
      <Text as="span" color="fg.muted" {...rest}>
        –
      </Text>
    );
  return (
    <chakra.time dateTime={instant} title={`${formatInstant(instant, zone)} (${zone})`} whiteSpace="nowrap" {...rest}>
      {relative(instant, now, { short })}
    </chakra.time>
  );
}
