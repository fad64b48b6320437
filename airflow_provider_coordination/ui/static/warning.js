/** A warning or an error on one line. A word shows its level as well as a colour. */

import { C, h } from "./host.js";
import { Icon } from "./icons.js";
import { ManualLink } from "./widgets.js";

/**
 * @param {{level: "error"|"warning", topic?: string, children?: Content} & Styles} props `topic` is where the manual
 *     says more
 */
export function Warning({ level, topic, children, ...rest }) {
  const isError = level === "error";
  return h(
    C.Flex,
    {
      as: "p",
      gap: 2,
      align: "flex-start",
      fontSize: "sm",
      color: isError ? "red.fg" : "orange.fg",
      bg: isError ? "bg.error" : "bg.warning",
      borderRadius: "sm",
      px: 2,
      py: 1,
      "data-alarm": level,
      ...rest,
    },
    h(C.Box, { as: "span", pt: "2px", display: "flex" }, h(Icon, { name: "alert" })),
    h(C.VisuallyHidden, null, isError ? "Error: " : "Warning: "),
    h(C.Box, { as: "span", flex: 1, minW: 0, overflowWrap: "anywhere" }, children),
    topic && h(ManualLink, { topic }),
  );
}
