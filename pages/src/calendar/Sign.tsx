import { Flex } from "@chakra-ui/react";

import type { Styles } from "../types";
import type { IntervalState } from "./cells";
import { INTERVALS } from "./intervalStates";

/** The colour and the sign of a state. A corner marks records that came late. */
export function Sign({ state, isLate = false, ...rest }: { state: IntervalState; isLate?: boolean } & Styles) {
  const { palette, sign } = INTERVALS[state];
  const isBlank = state === "none" || state === "ahead";
  return (
    <Flex
      as="span"
      aria-hidden
      align="center"
      justify="center"
      position="relative"
      overflow="hidden"
      borderRadius="2px"
      borderWidth={1}
      fontSize="xs"
      fontWeight="semibold"
      lineHeight={1}
      colorPalette={palette}
      bg={isBlank ? "transparent" : "colorPalette.subtle"}
      color={isBlank ? "fg.subtle" : "colorPalette.fg"}
      borderColor={state === "none" ? "transparent" : isBlank ? "border" : "colorPalette.muted"}
      borderStyle={state === "ahead" ? "dotted" : "solid"}
      {...rest}
    >
      {sign}
      {isLate && (
        <svg width={9} height={9} viewBox="0 0 9 9" style={{ position: "absolute", top: 0, insetInlineEnd: 0 }}>
          <path d="M0 0H9V9Z" fill="var(--chakra-colors-orange-solid)" />
        </svg>
      )}
    </Flex>
  );
}
