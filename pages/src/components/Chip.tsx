import { Badge } from "@chakra-ui/react";

import { stateOf, STATES } from "../states";
import type { State, Styles } from "../types";
import { Dot } from "./Dot";

/** The label of a state on its colour. */
export function Chip({ state, states = STATES, ...rest }: { state: string; states?: Record<string, State> } & Styles) {
  const { label, palette, meaning } = stateOf(state, states);
  return (
    <Badge colorPalette={palette} variant="subtle" title={meaning} flexShrink={0} data-state={state} {...rest}>
      <Dot palette={palette} />
      {label}
    </Badge>
  );
}
