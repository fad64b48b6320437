/** The timeline as a chart: a lane for each partition, a bar for each time that an owner held it. */

import { C, Fragment, h, memo, useCallback, useMemo, useRef, useState } from "./host.js";
import { fittingText, PointerDetails } from "./chart_controls.js";
import { Instant, Shortened } from "./widgets.js";
import { useSize } from "./element_size.js";
import { areaOf, ENDS, fillOf, stateOf } from "./states.js";
import { ownerLabel } from "./text.js";
import { useNow, useZone } from "./clock.js";
import { duration, formatInstant } from "./time.js";
import { barsOf, isProblem, ownerPalette, ticksOf } from "./timeline_layout.js";
import { topToShow, visibleRows } from "./virtual_rows.js";

const HEAD = 26;
const LABEL = 230;
const BAR = 18;
/** A style, as Airflow's own styles override attributes. */
const TEXT = { fontSize: "11px", pointerEvents: "none" };

/**
 * @param {string} partitionKey
 * @param {{holding: Api.HoldingFacts}} props
 * @param {string} zone
 */
function ariaLabelOf(partitionKey, { holding }, zone) {
  const began = holding.began_at === null ? "an unknown time" : formatInstant(holding.began_at, zone);
  const ended = holding.ended_at === null ? "now" : formatInstant(holding.ended_at, zone);
  return `${partitionKey}, held by ${ownerLabel(holding.owner) || "an unknown owner"} from ${began} to ${ended}, ${stateOf(holding.end, ENDS).label}`;
}

/**
 * @typedef {{
 *   partitionKey: string, bar: Bar, y: number, isActive: boolean, zone: string, name: string,
 *   onPoint: (name: string, isFocus?: boolean) => void, onOpen: (key: string) => void,
 * }} DrawnBar
 */

const BarShape = memo(function BarShape(/** @type {DrawnBar} */ { partitionKey, bar, y, isActive, zone, name, onPoint, onOpen }) {
  const { holding, x, width } = bar;
  const colours = areaOf(ownerPalette(holding.owner?.name ?? ""));
  const end = stateOf(holding.end, ENDS);
  const text = fittingText(ownerLabel(holding.owner), width - 12, 6.2);
  const cap = Math.min(4, width);
  const shape = h(
    "g",
    {
      role: "button",
      tabIndex: isActive ? 0 : -1,
      "aria-label": ariaLabelOf(partitionKey, bar, zone),
      "data-bar": name,
      "data-end": holding.end,
      className: "coordination-shape",
      style: { cursor: "pointer" },
      onPointerEnter: () => onPoint(name),
      onFocus: () => onPoint(name, true),
      onClick: () => onOpen(partitionKey),
    },
    h("rect", {
      x,
      y,
      width,
      height: BAR,
      rx: Math.min(3, width / 2),
      fill: width < 8 ? colours.stroke : colours.fill,
      stroke: colours.stroke,
      strokeWidth: width < 8 ? 0 : 1,
    }),
    !bar.endsAfter &&
      holding.ended_at !== null &&
      h("rect", { x: x + width - cap, y, width: cap, height: BAR, fill: fillOf(end.palette) }),
    isProblem(holding.end) &&
      !bar.endsAfter &&
      h("path", {
        d: `M${x + width - 5} ${y - 3} l5 -0 l5 0 l-5 6 z`,
        fill: fillOf(end.palette),
        stroke: "var(--chakra-colors-bg)",
        strokeWidth: 1,
      }),
  );
  // Beside the button, not in it: the label of the button contains it.
  return h(
    Fragment,
    null,
    shape,
    text !== "" && h("text", { x: x + 7, y: y + 13, fill: colours.text, "aria-hidden": true, style: TEXT }, text),
  );
});

/**
 * @typedef {{
 *   line: Api.PartitionLine, at: number, laneHeight: number, chart: number, labelWidth: number,
 *   ticks: {at: number, x: number, text: string}[], window: {since: number, until: number, now: number}, isNarrow: boolean,
 *   active: number, zone: string, onPoint: (name: string, isFocus?: boolean) => void, onOpen: (key: string) => void,
 * }} DrawnLane
 */

const Lane = memo(function Lane(/** @type {DrawnLane} */ {
  line,
  at,
  laneHeight,
  chart,
  labelWidth,
  ticks,
  window,
  isNarrow,
  active,
  zone,
  onPoint,
  onOpen,
}) {
  const bars = barsOf(line.holdings, { ...window, width: chart });
  const y = (isNarrow ? 20 : 0) + (laneHeight - (isNarrow ? 20 : 0) - BAR) / 2;
  return h(
    C.Box,
    {
      position: "absolute",
      insetInline: 0,
      display: "flex",
      flexDirection: isNarrow ? "column" : "row",
      borderBottomWidth: 1,
      borderColor: "border",
      style: { top: at * laneHeight, height: laneHeight },
      "data-lane": line.partition_key,
      "data-key": line.partition_key,
    },
    h(
      C.Box,
      {
        style: { width: isNarrow ? chart : labelWidth, height: isNarrow ? 20 : laneHeight },
        flexShrink: 0,
        display: "flex",
        alignItems: "center",
        px: 2,
        minW: 0,
        fontSize: "xs",
        position: isNarrow ? "absolute" : "static",
        zIndex: 1,
      },
      h(
        C.chakra.button,
        {
          type: "button",
          "data-opens": true,
          "aria-haspopup": "dialog",
          "aria-label": line.partition_key,
          maxW: "full",
          minW: 0,
          display: "flex",
          cursor: "pointer",
          _hover: { textDecoration: "underline" },
          onClick: () => onOpen(line.partition_key),
        },
        h(Shortened, { text: line.partition_key, tail: 20 }),
      ),
    ),
    h(
      "svg",
      {
        width: chart,
        height: laneHeight,
        style: { flexShrink: 0, display: "block" },
        role: "group",
        "aria-label": line.partition_key,
      },
      ...ticks.map((tick) =>
        h("line", {
          key: tick.at,
          x1: tick.x,
          x2: tick.x,
          y1: 0,
          y2: laneHeight,
          stroke: "var(--chakra-colors-border)",
        }),
      ),
      ...bars.map((bar, index) => {
        const name = `${at} ${index}`;
        return h(BarShape, {
          key: name,
          name,
          partitionKey: line.partition_key,
          bar,
          y,
          isActive: index === active,
          zone,
          onPoint,
          onOpen,
        });
      }),
    ),
  );
});

/**
 * @param {{
 *   response: Api.Timeline, onOpen: (key: string) => void,
 * }} props the API's response for the timeline
 */
export function Chart({ response, onOpen }) {
  const zone = useZone();
  const [size, measure] = useSize();
  const scroller = useRef(/** @type {HTMLElement|null} */ (null));
  const [top, setTop] = useState(0);
  const [pointed, setPointed] = useState(/** @type {string|null} */ (null));
  const [active, setActive] = useState("0 0");
  const attach = useCallback((/** @type {HTMLElement|null} */ element) => {
    scroller.current = element;
    measure(element);
  }, []);
  const isNarrow = size.width < 640;
  const laneHeight = isNarrow ? 46 : 28;
  const labelWidth = isNarrow ? 0 : LABEL;
  const chart = Math.max(100, size.width - labelWidth);
  // Lanes are drawn again with each response, and not while scrolling or pointing.
  const span = useMemo(
    () => ({ since: Date.parse(response.since), until: Date.parse(response.until), now: Date.parse(response.as_of) }),
    [response],
  );
  const ticks = useMemo(
    () => ticksOf(span.since, span.until, chart, zone, isNarrow ? 64 : 90),
    [span, chart, zone, isNarrow],
  );
  const lines = response.partitions;
  const sight = visibleRows({ top, height: size.height - HEAD, rowHeight: laneHeight, count: lines.length });
  const onPoint = useCallback((/** @type {string} */ name, /** @type {boolean|undefined} */ isFocus) => {
    setPointed(name);
    if (isFocus) setActive(name);
  }, []);
  /** @param {number} at */
  const barsAt = (at) => barsOf(lines[at].holdings, { ...span, width: chart });
  const [activeLane, activeBar] = active.split(" ").map(Number);
  const isThere = activeLane < lines.length && activeBar < barsAt(activeLane).length;
  const [lane, place] = isThere ? [activeLane, activeBar] : firstBar(lines, barsAt);

  /** @param {ReactKeyEvent} event */
  const onKeyDown = (event) => {
    if (!event.target.matches("[data-bar]")) return;
    const [lane, index] = String(event.target.getAttribute("data-bar")).split(" ").map(Number);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onOpen(lines[lane].partition_key);
      return;
    }
    const next = nextBar(event.key, lane, index, lines.length, barsAt);
    if (next === null) return;
    event.preventDefault();
    const element = scroller.current;
    if (element === null) return;
    const wanted = topToShow({
      index: next[0],
      top: element.scrollTop,
      height: size.height - HEAD,
      rowHeight: laneHeight,
    });
    if (wanted !== null) element.scrollTop = wanted;
    setActive(next.join(" "));
    requestAnimationFrame(() =>
      requestAnimationFrame(() =>
        /** @type {HTMLElement|null} */ (element.querySelector(`[data-bar="${next.join(" ")}"]`))?.focus({
          preventScroll: true,
        }),
      ),
    );
  };
  const shown = pointed === null ? null : pointedBar(pointed, lines, barsAt);
  /** @type {number[]} */
  const drawn = [];
  for (let at = sight.first; at < sight.end; at += 1) drawn.push(at);
  if (lane >= 0 && (lane < sight.first || lane >= sight.end)) drawn.push(lane);
  return h(
    Fragment,
    null,
    h(
      C.Box,
      {
        ref: attach,
        flex: 1,
        minH: { base: "420px", md: "260px" },
        overflowY: "auto",
        overflowX: "hidden",
        borderWidth: 1,
        borderColor: "border.emphasized",
        borderTopRadius: "md",
        bg: "bg",
        onScroll: (event) => setTop(event.currentTarget.scrollTop),
        onKeyDown,
        onPointerLeave: () => setPointed(null),
        "data-timeline": lines.length,
      },
      h(
        C.Flex,
        {
          position: "sticky",
          top: 0,
          zIndex: 2,
          bg: "bg.muted",
          h: `${HEAD}px`,
          borderBottomWidth: 1,
          borderColor: "border.emphasized",
          "aria-hidden": true,
        },
        labelWidth > 0 &&
          h(
            C.Box,
            {
              style: { width: labelWidth },
              px: 2,
              fontSize: "xs",
              color: "fg.muted",
              fontWeight: "semibold",
              lineHeight: `${HEAD}px`,
            },
            "Partition",
          ),
        h(
          "svg",
          { width: chart, height: HEAD - 1 },
          ...ticks.map((tick) =>
            h(
              "g",
              { key: tick.at },
              h("line", { x1: tick.x, x2: tick.x, y1: 18, y2: HEAD, stroke: "var(--chakra-colors-fg-muted)" }),
              h(
                "text",
                {
                  x: tick.x + (tick.x < 24 ? 2 : tick.x > chart - 24 ? -2 : 0),
                  y: 14,
                  style: TEXT,
                  textAnchor: tick.x < 24 ? "start" : tick.x > chart - 24 ? "end" : "middle",
                  fill: "var(--chakra-colors-fg-muted)",
                },
                tick.text,
              ),
            ),
          ),
        ),
      ),
      h(
        C.Box,
        { position: "relative", style: { height: lines.length * laneHeight } },
        ...drawn.map((at) =>
          h(Lane, {
            key: lines[at].partition_key,
            line: lines[at],
            at,
            laneHeight,
            chart,
            labelWidth,
            ticks,
            window: span,
            isNarrow,
            active: at === lane ? place : -1,
            zone,
            onPoint,
            onOpen,
          }),
        ),
      ),
    ),
    h(
      PointerDetails,
      { hint: "Point at a bar, or use the arrow keys. Press Enter to open the partition." },
      shown && h(About, { line: shown.line, bar: shown.bar }),
    ),
  );
}

/**
 * @param {Api.PartitionLine[]} lines
 * @param {(at: number) => Bar[]} barsAt
 */
function firstBar(lines, barsAt) {
  return [lines.findIndex((_, index) => barsAt(index).length > 0), 0];
}

/**
 * @param {string} name
 * @param {Api.PartitionLine[]} lines
 * @param {(at: number) => Bar[]} barsAt
 */
function pointedBar(name, lines, barsAt) {
  const [at, index] = name.split(" ").map(Number);
  const bar = at < lines.length ? barsAt(at)[index] : undefined;
  return bar === undefined ? null : { line: lines[at], bar };
}

/**
 * @param {string} key
 * @param {number} lane
 * @param {number} index
 * @param {number} count
 * @param {(at: number) => Bar[]} barsAt
 */
function nextBar(key, lane, index, count, barsAt) {
  const bars = barsAt(lane);
  if (key === "ArrowRight") return index + 1 < bars.length ? [lane, index + 1] : [lane, index];
  if (key === "ArrowLeft") return [lane, Math.max(0, index - 1)];
  if (key !== "ArrowUp" && key !== "ArrowDown") return null;
  const step = key === "ArrowUp" ? -1 : 1;
  for (let at = lane + step; at >= 0 && at < count; at += step) {
    const others = barsAt(at);
    if (others.length === 0) continue;
    const middle = bars[index] === undefined ? 0 : bars[index].x + bars[index].width / 2;
    let best = 0;
    others.forEach((other, place) => {
      if (Math.abs(other.x + other.width / 2 - middle) < Math.abs(others[best].x + others[best].width / 2 - middle))
        best = place;
    });
    return [at, best];
  }
  return [lane, index];
}

/**
 * The details of a holding: its owner, its duration, its start and its end.
 *
 * @param {{line: Api.PartitionLine, bar: Bar}} props
 */
function About({ line, bar }) {
  const now = useNow();
  const { holding } = bar;
  const end = stateOf(holding.end, ENDS);
  const seconds =
    holding.began_at === null
      ? null
      : ((holding.ended_at === null ? now : Date.parse(holding.ended_at)) - Date.parse(holding.began_at)) / 1000;
  return h(
    C.Stack,
    { gap: 1 },
    h(
      C.Flex,
      { gap: 2, align: "center", wrap: "wrap", minW: 0 },
      h(
        C.Text,
        { fontWeight: "semibold", title: holding.owner?.name, overflowWrap: "anywhere", minW: 0 },
        ownerLabel(holding.owner),
      ),
      h(C.Badge, { colorPalette: end.palette, variant: "subtle" }, end.label),
      seconds !== null && h(C.Text, { fontVariantNumeric: "tabular-nums" }, duration(seconds)),
      h(C.Text, { color: "fg.muted", minW: 0, truncate: true }, line.partition_key),
    ),
    h(
      C.Flex,
      { gap: 1, fontSize: "xs", color: "fg.muted", wrap: "wrap" },
      holding.began_at === null
        ? "held since before the start of the history"
        : h(
            Fragment,
            null,
            holding.begin === "unknown" ? "held since" : holding.begin,
            h(Instant, { instant: holding.began_at, withAge: false }),
          ),
      holding.ended_at !== null &&
        h(Fragment, null, "until", h(Instant, { instant: holding.ended_at, withAge: false })),
      holding.reason && h(C.Span, { overflowWrap: "anywhere" }, `· ${holding.reason}`),
      holding.by && `· by ${holding.by}`,
    ),
  );
}
