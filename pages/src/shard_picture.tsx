/**
 * The family tree of shards as a chart: hash keys or families from top to bottom, generations from left to right. The right
 * edge is now. Only visible shards are drawn. A strip beside them shows all.
 */

import { Box, Flex, Stack, Text } from "@chakra-ui/react";
import {
  type KeyboardEvent,
  type PointerEvent,
  memo,
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";

import { fittingText, PointerDetails } from "./chart_controls";
import { useSize } from "./element_size";
import { boxesBetween, compact, firstProblem, neighbour, readableHeight } from "./shard_layout";
import { areaOf, fillOf, stateOf } from "./states";
import { ownerLabel, shardLabel } from "./text";
import { lagText } from "./time";
import { Chip } from "./widgets";
import type { ShardBox, PlacedHole, Layout } from "./types";

const WIDE_COLUMN = 168;
const NARROW_COLUMN = 112;
const HEAD = 24;
const MAP = 30;
const TALLEST = 200000;
const AROUND = 300;
/** A style, as Airflow's own styles override attributes. */
const TEXT = { fontSize: "11px", pointerEvents: "none" } as const;

/** Return a share of the hash keys as text. */
export function shareText(share: number) {
  const percent = share * 100;
  return `${percent >= 10 ? Math.round(percent) : percent.toPrecision(2)} %`;
}

/** Return the description of a shard for screen readers. */
function ariaLabelOf(box: ShardBox) {
  const { shard } = box;
  const parts = [`Shard ${shardLabel(shard.shard_id)}`, stateOf(shard.state).label];
  if (shard.owner) parts.push(`owner ${ownerLabel(shard.owner)}`);
  if (shard.lag !== null) parts.push(`lag ${lagText(shard.lag)}`);
  if (shard.starting_hash_key !== null) parts.push(`${shareText(box.share)} of the hash keys`);
  if (shard.parents.length > 1) parts.push(`merged from ${shard.parents.map(shardLabel).join(" and ")}`);
  else if (shard.parents.length === 1) parts.push(`child of ${shardLabel(shard.parents[0])}`);
  if (shard.children.length > 1) parts.push(`split into ${shard.children.map(shardLabel).join(" and ")}`);
  else if (shard.children.length === 1) parts.push(`parent of ${shardLabel(shard.children[0])}`);
  return parts.join(", ");
}

type DrawnShape = {
  box: ShardBox;
  x: number;
  y: number;
  width: number;
  height: number;
  textX: number;
  textY: number;
  isActive: boolean;
  isFaint: boolean;
  isFound: boolean;
  onPoint: (box: ShardBox, isFocus?: boolean) => void;
  onOpen: (box: ShardBox) => void;
};

const Shape = memo(function Shape({
  box,
  x,
  y,
  width,
  height,
  textX,
  textY,
  isActive,
  isFaint,
  isFound,
  onPoint,
  onOpen,
}: DrawnShape) {
  const { shard } = box;
  const { label, palette } = stateOf(shard.state);
  const colours = areaOf(palette, shard.state === "completed");
  const isTall = height >= 13;
  const name = shardLabel(shard.shard_id);
  const rest = shard.lag === null || shard.state === "completed" ? label : `${label} · ${lagText(shard.lag)}`;
  const shape = (
    <g
      role="button"
      tabIndex={isActive ? 0 : -1}
      aria-label={ariaLabelOf(box)}
      aria-disabled={shard.partition_key === null || undefined}
      data-shard={shard.shard_id}
      data-state={shard.state}
      opacity={isFaint ? 0.25 : 1}
      style={{ cursor: shard.partition_key ? "pointer" : "default" }}
      className="coordination-shape"
      onPointerEnter={() => onPoint(box)}
      onFocus={() => onPoint(box, true)}
      onClick={() => onOpen(box)}
    >
      <rect
        x={x}
        y={y}
        width={width}
        height={height}
        rx={Math.min(3, height / 3)}
        fill={height < 5 ? colours.stroke : colours.fill}
        stroke={isFound ? "var(--chakra-colors-fg)" : colours.stroke}
        strokeWidth={height < 5 ? 0 : isFound ? 2 : 1}
        strokeDasharray={shard.state === "unleased" ? "4 3" : undefined}
      />
      {height >= 5 && <rect x={x} y={y} width={4} height={height} rx={1} fill={colours.stroke} />}
    </g>
  );
  // Beside the button, not in it: the label of the button contains it.
  const text = isTall && (
    <text x={textX} y={textY} fill={colours.text} opacity={isFaint ? 0.25 : 1} aria-hidden style={TEXT}>
      <tspan style={{ fontWeight: 600 }}>{fittingText(name, x + width - textX - 4)}</tspan>
      <tspan dx={6}>{fittingText(rest, x + width - textX - 14 - name.length * 6.6)}</tspan>
    </text>
  );
  return (
    <>
      {shape}
      {text}
    </>
  );
});

/** The whole stream as a strip, with the visible part marked. */
function Strip({
  boxes,
  holes,
  height,
  from,
  to,
  onGo,
}: {
  boxes: ShardBox[];
  holes: PlacedHole[];
  height: number;
  from: number;
  to: number;
  onGo: (at: number) => void;
}) {
  const go = (event: PointerEvent<SVGSVGElement>) => {
    const area = event.currentTarget.getBoundingClientRect();
    onGo((event.clientY - area.top) / area.height);
  };
  return (
    <svg
      width={MAP}
      height={height}
      aria-hidden
      data-map
      style={{ cursor: "pointer", flexShrink: 0, touchAction: "none" }}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        go(event);
      }}
      onPointerMove={(event) => event.buttons === 1 && go(event)}
    >
      {boxes
        .filter((box) => box.open)
        .map((box) => (
          <rect
            key={box.shard.shard_id}
            x={4}
            width={MAP - 10}
            y={box.top * height}
            height={Math.max(0.7, (box.bottom - box.top) * height - 0.3)}
            fill={fillOf(stateOf(box.shard.state).palette)}
          />
        ))}
      {holes.map((hole, index) => (
        <rect
          key={`hole ${index}`}
          x={0}
          width={MAP - 2}
          y={hole.top * height - 1}
          height={Math.max(3, (hole.bottom - hole.top) * height)}
          fill="var(--chakra-colors-red-solid)"
        />
      ))}
      <rect
        x={1}
        width={MAP - 4}
        y={from * height + 1}
        height={Math.max(6, (to - from) * height - 2)}
        fill="none"
        stroke="var(--chakra-colors-fg)"
        strokeWidth={2}
        rx={2}
      />
    </svg>
  );
}

/**
 * @param props
 *     `isCompact` if small shards are drawn larger than to scale
 */
export function Picture({
  layout,
  isCompact,
  zoom,
  find,
  onOpen,
  label,
}: {
  layout: Layout;
  isCompact: boolean;
  zoom: number | "fit";
  find: string;
  onOpen: (box: ShardBox) => void;
  label: string;
}) {
  const [size, measure] = useSize();
  const scroller = useRef<HTMLElement>(null);
  const [{ top, left }, setPlace] = useState({ top: 0, left: 0 });
  const [pointed, setPointed] = useState<string | null>(null);
  const [activeId, setActiveId] = useState<string | null>(null);
  const inSight = Math.max(120, size.height - HEAD);
  const shownLayout = useMemo(() => (isCompact ? compact(layout, inSight) : layout), [layout, isCompact, inSight]);
  const { boxes, holes, generations } = shownLayout;
  const readable = shownLayout.height ?? readableHeight(boxes, inSight);
  const height = zoom === "fit" ? inSight : Math.min(TALLEST, Math.max(inSight, readable * zoom));
  const isTall = height > inSight * 1.05;
  const column = Math.max(size.width < 560 ? NARROW_COLUMN : WIDE_COLUMN, (size.width - 2) / Math.max(1, generations));
  const width = generations * column;
  const attach = useCallback((element: HTMLElement | null) => {
    scroller.current = element;
    measure(element);
  }, []);

  // The middle stays in the middle when the zoom changes.
  const before = useRef(height);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null || before.current === height) return;
    const middle = (element.scrollTop + inSight / 2) / before.current;
    before.current = height;
    element.scrollTop = middle * height - inSight / 2;
    setPlace({ top: element.scrollTop, left: element.scrollLeft });
  }, [height]);

  const isMeasured = size.width > 0;
  // It opens on a problem. The user may scroll from there.
  const hasOpened = useRef(false);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!isMeasured || hasOpened.current || element === null) return;
    hasOpened.current = true;
    const trouble = firstProblem(shownLayout);
    if (trouble === null) return;
    element.scrollTop = ((trouble.top + trouble.bottom) / 2) * height - inSight / 2;
    setPlace({ top: element.scrollTop, left: element.scrollLeft });
  }, [isMeasured]);

  // The right edge is now. It stays visible while generations are added.
  const isAtNow = useRef(true);
  useLayoutEffect(() => {
    if (isMeasured && isAtNow.current && scroller.current !== null) scroller.current.scrollLeft = width;
  }, [isMeasured, width]);

  const wanted = find.trim().toLowerCase();
  const found = useMemo(
    () => (wanted === "" ? null : new Set(boxes.filter((box) => matches(box, wanted)))),
    [boxes, wanted],
  );

  const show = (box: ShardBox) => {
    const element = scroller.current;
    if (element === null) return;
    const y = ((box.top + box.bottom) / 2) * height;
    if (y < element.scrollTop || y > element.scrollTop + inSight) element.scrollTop = y - inSight / 2;
    const x = box.from * column;
    if (x < element.scrollLeft || x + column > element.scrollLeft + size.width - MAP) element.scrollLeft = x - 8;
  };
  useEffect(() => {
    const first = found === null ? null : [...found][0];
    if (first) show(first);
  }, [wanted]);

  const active = boxes.find((box) => box.shard.shard_id === activeId) ?? boxes[0];
  const drawn = new Set(boxesBetween(boxes, (top - AROUND) / height, (top + inSight + AROUND) / height));
  if (active) drawn.add(active);
  const onPoint = useCallback((box: ShardBox, isFocus: boolean | undefined) => {
    setPointed(box.shard.shard_id);
    if (isFocus) setActiveId(box.shard.shard_id);
  }, []);

  const onKeyDown = (event: KeyboardEvent<SVGSVGElement>) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onOpen(active);
      return;
    }
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    const next = neighbour(boxes, active, event.key);
    setActiveId(next.shard.shard_id);
    show(next);
    requestAnimationFrame(() =>
      requestAnimationFrame(() =>
        (
          scroller.current?.querySelector(`[data-shard="${CSS.escape(next.shard.shard_id)}"]`) as
            HTMLElement | null | undefined
        )?.focus({ preventScroll: true }),
      ),
    );
  };
  const shown = boxes.find((box) => box.shard.shard_id === pointed);
  return (
    <>
      <Flex
        borderWidth={1}
        borderColor="border.emphasized"
        borderTopRadius="md"
        bg="bg"
        overflow="hidden"
        flex={1}
        minH={{ base: "420px", md: "300px" }}
      >
        {isTall && size.height > 0 && (
          <Box pt={`${HEAD}px`} ps={1} borderEndWidth={1} borderColor="border">
            <Strip
              boxes={boxes}
              holes={holes}
              height={inSight}
              from={top / height}
              to={(top + inSight) / height}
              onGo={(at) => {
                if (scroller.current !== null) scroller.current.scrollTop = at * height - inSight / 2;
              }}
            />
          </Box>
        )}
        <Box
          ref={attach}
          flex={1}
          minW={0}
          overflow="auto"
          position="relative"
          onScroll={({ currentTarget: { scrollTop, scrollLeft, clientWidth, scrollWidth } }) => {
            isAtNow.current = scrollLeft + clientWidth >= scrollWidth - 2;
            setPlace({ top: scrollTop, left: scrollLeft });
          }}
          data-tree={boxes.length}
        >
          <Box
            position="sticky"
            top={0}
            zIndex={1}
            bg="bg.muted"
            h={`${HEAD}px`}
            style={{ width }}
            display="flex"
            fontSize="xs"
            color="fg.muted"
            aria-hidden
          >
            {Array.from({ length: generations }, (_, index) => (
              <Box
                key={index}
                px={2}
                lineHeight={`${HEAD}px`}
                style={{ width: column }}
                whiteSpace="nowrap"
                overflow="hidden"
              >
                {generations === 1
                  ? "now"
                  : index === generations - 1
                    ? `generation ${index + 1}, now`
                    : `generation ${index + 1}`}
              </Box>
            ))}
          </Box>
          <svg
            width={width}
            height={height}
            role="group"
            aria-label={label}
            onKeyDown={onKeyDown}
            onPointerLeave={() => setPointed(activeId)}
            style={{ display: "block" }}
          >
            <defs>
              <pattern
                id="coordination-hole"
                width={8}
                height={8}
                patternUnits="userSpaceOnUse"
                patternTransform="rotate(45)"
              >
                <rect width={8} height={8} fill="var(--chakra-colors-red-subtle)" />
                <rect width={3} height={8} fill="var(--chakra-colors-red-solid)" />
              </pattern>
            </defs>
            {boxes
              .filter((box) => drawn.has(box))
              .map((box) => {
                const tall = (box.bottom - box.top) * height;
                const gap = tall > 8 ? 2 : tall > 3 ? 1 : 0.3;
                const x = box.from * column + 1;
                // The text is in the middle of the visible part.
                const from = Math.max(box.top * height, top);
                const to = Math.min(box.bottom * height, top + inSight);
                return (
                  <Shape
                    key={box.shard.shard_id}
                    box={box}
                    x={x}
                    textX={Math.max(x, left) + 10}
                    textY={Math.round((to - from > 20 ? (from + to) / 2 : ((box.top + box.bottom) / 2) * height) + 4)}
                    y={box.top * height + gap / 2}
                    width={(box.to - box.from) * column - 3}
                    height={Math.max(0.7, tall - gap)}
                    isActive={box === active}
                    isFaint={found !== null && !found.has(box)}
                    isFound={found !== null && found.has(box)}
                    onPoint={onPoint}
                    onOpen={onOpen}
                  />
                );
              })}
            {holes.map((hole, index) => (
              <g
                key={`hole ${index}`}
                role="img"
                aria-label={`Hole: no shard lease covers ${shareText(hole.share)} of the hash keys`}
                data-hole
              >
                <title>
                  {`Hole: no shard lease covers the hash keys ${hole.hole.starting_hash_key} to ${hole.hole.ending_hash_key}`}
                </title>
                <rect
                  x={hole.from * column + 1}
                  y={hole.top * height}
                  width={(generations - hole.from) * column - 2}
                  height={Math.max(4, (hole.bottom - hole.top) * height)}
                  fill="url(#coordination-hole)"
                  stroke="var(--chakra-colors-red-solid)"
                />
              </g>
            ))}
          </svg>
        </Box>
      </Flex>
      <PointerDetails hint="Point at a shard, or use the arrow keys: left to parents, right to children. Press Enter to open its partition.">
        {shown && <About box={shown} />}
      </PointerDetails>
    </>
  );
}

export function matches(box: ShardBox, wanted: string) {
  const { shard } = box;
  return (
    shard.shard_id.toLowerCase().includes(wanted) ||
    (shard.owner?.name ?? "").toLowerCase().includes(wanted) ||
    stateOf(shard.state).label.toLowerCase() === wanted
  );
}

function About({ box }: { box: ShardBox }) {
  const { shard } = box;
  return (
    <Stack gap={1}>
      <Flex gap={2} align="center" wrap="wrap">
        <Text fontWeight="semibold" overflowWrap="anywhere">
          {shard.shard_id}
        </Text>
        <Chip state={shard.state} />
        {shard.owner && (
          <Text title={shard.owner.name} overflowWrap="anywhere" minW={0}>
            {ownerLabel(shard.owner)}
          </Text>
        )}
        {shard.lag !== null && shard.state !== "completed" && (
          <Text fontVariantNumeric="tabular-nums">{`lag ${lagText(shard.lag)}`}</Text>
        )}
      </Flex>
      <Text color="fg.muted" fontSize="xs" overflowWrap="anywhere">
        {[
          ...(shard.starting_hash_key === null
            ? []
            : [`${shareText(box.share)} of the hash keys`, `${shard.starting_hash_key} to ${shard.ending_hash_key}`]),
          shard.parents.length === 0
            ? null
            : `${shard.parents.length > 1 ? "merged from" : "child of"} ${shard.parents.map(shardLabel).join(", ")}`,
          shard.children.length === 0
            ? null
            : `${shard.children.length > 1 ? "split into" : "parent of"} ${shard.children.map(shardLabel).join(", ")}`,
        ]
          .filter(Boolean)
          .join(" · ")}
      </Text>
    </Stack>
  );
}
