import { Link, VisuallyHidden } from "@chakra-ui/react";

import { addressOf } from "../api/request";
import type { Styles } from "../types";
import { Icon } from "./Icon";

/**
 * A link to the place in the manual that says what to do; it opens in a new tab.
 *
 * @param props `page#anchor`, or a topic that the API knows
 */
export function ManualLink({ manual, topic, ...rest }: { manual?: string; topic?: string } & Styles) {
  const path = manual === undefined ? `coordination/manual?topic=${topic}` : `coordination/manual/${manual}`;
  return (
    <Link
      href={addressOf(path)}
      target="_blank"
      rel="noopener noreferrer"
      color="inherit"
      textDecoration="underline"
      fontSize="xs"
      flexShrink={0}
      whiteSpace="nowrap"
      data-manual={manual ?? topic}
      {...rest}
    >
      What to do
      <VisuallyHidden>{" (opens the manual in a new tab)"}</VisuallyHidden>
      <Icon name="link" size={3} />
    </Link>
  );
}
