/** The icons of the pages, as strokes in the colour of the text around them. */

import { Icon as ChakraIcon } from "@chakra-ui/react";

import type { Styles } from "../types";

const PATHS: Record<string, string> = {
  alert: "M12 8v5M12 16.5v.5M10.3 3.9 2.4 18a2 2 0 0 0 1.7 3h15.8a2 2 0 0 0 1.7-3L13.7 3.9a2 2 0 0 0-3.4 0Z",
  check: "M4 12.5 9.5 18 20 6.5",
  chevron: "m9 5 7 7-7 7",
  close: "M5 5l14 14M19 5 5 19",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  link: "M14 4h6v6M20 4l-9 9M18 14v5a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V7a1 1 0 0 1 1-1h5",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  pause: "M8 5v14M16 5v14",
  play: "M7 4.5v15l12-7.5Z",
  plug: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0ZM12 17v4",
  search: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13ZM15.5 15.5 20 20",
  sort: "M8 4v16M4 8l4-4 4 4M16 20V4M12 16l4 4 4-4",
  tree: "M5 3v18M5 8h8a3 3 0 0 1 3 3v0M5 16h14M16 11h3",
};

/** An icon. Screen readers ignore it, so it needs a label beside it. */
export function Icon({ name, size = 4, ...rest }: { name: string; size?: number } & Styles) {
  return (
    <ChakraIcon asChild boxSize={size} flexShrink={0} {...rest}>
      <svg
        viewBox="0 0 24 24"
        fill="none"
        stroke="currentColor"
        strokeWidth={2}
        strokeLinecap="round"
        strokeLinejoin="round"
        aria-hidden
        focusable={false}
      >
        <path d={PATHS[name]} />
      </svg>
    </ChakraIcon>
  );
}
