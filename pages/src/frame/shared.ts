/** The frame of the pages of a source: its path, its freshness, its alarms, its tabs, and the latest message. */

import { useEffect } from "react";

import type { SourceCard } from "../api/schema";

/** Shapes of a chart have no outline of their own. */
export const FOCUS = {
  "& .coordination-shape": { outline: "none" },
  "& .coordination-shape:focus-visible > rect:first-of-type": {
    stroke: "var(--chakra-colors-fg)",
    strokeWidth: "2.5px",
  },
};

/** A folded alarm: one line, cut off if it is longer. On a phone four lines, and nothing else that takes space. */
export const FOLDED = {
  "& p": { minWidth: 0, mdDown: { fontSize: "13px", lineHeight: "17px" } },
  "& p span": { overflow: "hidden", md: { whiteSpace: "nowrap", textOverflow: "ellipsis" } },
  "& [data-text]": { mdDown: { lineClamp: 4 } },
  "& [data-manual], & [data-chevron]": { mdDown: { display: "none" } },
};
export const FOLDED_HEIGHT = { base: "76px", md: "29px" };

/** Return whether a source has a page that only some sources have. A source that is not known yet may have it. */
export function hasPage(card: SourceCard | null, name: string) {
  return card === null || card === undefined || card.pages.includes(name);
}

/** Set the title of the browser's tab, and restore it afterwards. @param name of a source */
export function useTitle(name: string | null) {
  useEffect(() => {
    let previous: string | null = null;
    // Airflow's own pages restore their titles a moment after they are left.
    const timer = setTimeout(() => {
      previous = document.title;
      document.title = [name, "Ingestion", previous].filter(Boolean).join(" - ");
    });
    return () => {
      clearTimeout(timer);
      if (previous !== null) document.title = previous;
    };
  }, [name]);
}
