import { Box } from "@chakra-ui/react";

import { endOf } from "../format/text";
import type { Styles } from "../types";

/** Plain styles: long tables draw thousands, and they cost less than those of the theme. */
const HEAD = { overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "pre", minWidth: 0 };
const TAIL = { flexShrink: 0, whiteSpace: "pre" };

/** A text that is shortened in its middle if there is no room. Copying gives the whole text. */
export function Shortened({ text, tail = 14, ...rest }: { text: string; tail?: number } & Styles) {
  const cut = endOf(text, tail);
  return (
    <Box as="span" display="inline-flex" minW={0} maxW="full" title={text} dir="ltr" {...rest}>
      <span style={HEAD}>{text.slice(0, cut)}</span>
      {cut < text.length && <span style={TAIL}>{text.slice(cut)}</span>}
    </Box>
  );
}
