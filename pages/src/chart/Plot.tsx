import { Box } from "@chakra-ui/react";
import { useLayoutEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";

import { useSize } from "../components/useSize";
import type { Line, Unit } from "../types";
import { optionsOf, SIZES } from "./options";
import { aligned } from "./series";

/** What uPlot's own styles give the elements that a chart has; the pointer is ours. */
const STYLES = {
  "& .u-wrap": { position: "relative" },
  "& .u-over, & .u-under": { position: "absolute", pointerEvents: "none" },
  "& canvas": { display: "block", position: "relative", w: "full", h: "full" },
  "& .u-cursor-x, & .u-cursor-pt": { position: "absolute", top: 0, left: 0 },
  "& .u-cursor-x": { h: "full", borderRight: "1px dashed", borderColor: "fg" },
  "& .u-cursor-pt": { borderRadius: "full" },
  "& .u-off": { display: "none" },
};

/** The lines of a chart. Its unit, its zone and the looks of its lines stay; what else changes is drawn in place. */
export function Plot({
  lines,
  gaps,
  window: { since, until },
  at,
  onPoint,
  ...look
}: {
  lines: Line[];
  gaps: { since: number; until: number }[];
  window: { since: number; until: number };
  unit: Unit;
  format: (value: number) => string;
  zone: string;
  /** the instant that the user points at */
  at: number | null;
  onPoint: (at: number | null) => void;
}) {
  const [size, measure] = useSize();
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [options] = useState(() => (font: string) => optionsOf({ lines, ...look }, font));
  const data = useMemo(() => aligned(lines), [lines]);
  const percent = (duration: number) => `${(duration / (until - since)) * 100}%`;

  useLayoutEffect(() => {
    const parent = element.current as HTMLDivElement;
    const made = new uPlot(options(getComputedStyle(parent).fontFamily), undefined, parent);
    plot.current = made;
    // Airflow changes the colour mode by the class of the document.
    const observer = new MutationObserver(() => made.redraw(false));
    observer.observe(document.documentElement, { attributeFilter: ["class"] });
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [options]);
  useLayoutEffect(() => {
    plot.current?.batch((drawn: uPlot) => {
      drawn.setSize({ width: size.width, height: SIZES.height });
      drawn.setData(data, false);
      drawn.setScale("x", { min: since, max: until });
    });
  }, [data, since, until, size.width]);
  useLayoutEffect(() => {
    const left = at === null ? -1 : (plot.current?.valToPos(at, "x") ?? -1);
    plot.current?.setCursor({ left, top: left }, false);
  }, [at, data, since, until, size.width]);

  return (
    <Box
      ref={measure}
      position="relative"
      h={`${SIZES.height}px`}
      overflow="hidden"
      css={STYLES}
      aria-hidden
      onPointerMove={(event) => {
        const x = event.clientX - event.currentTarget.getBoundingClientRect().left - SIZES.left;
        onPoint(plot.current?.posToVal(x, "x") ?? null);
      }}
      onPointerLeave={() => onPoint(null)}
    >
      <Box
        position="absolute"
        top={`${SIZES.top}px`}
        bottom={`${SIZES.bottom}px`}
        left={`${SIZES.left}px`}
        right={`${SIZES.right}px`}
      >
        {gaps.map((gap) => (
          <Box
            key={gap.since}
            position="absolute"
            insetY={0}
            bg="bg.muted"
            style={{ left: percent(gap.since - since), width: percent(gap.until - gap.since) }}
            data-gap
          />
        ))}
      </Box>
      <Box ref={element} position="absolute" />
    </Box>
  );
}
