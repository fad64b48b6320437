import { Box, Flex, useCallbackRef } from "@chakra-ui/react";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";

import { PointerDetails } from "../chart/PointerDetails";
import { useSize } from "../components/useSize";
import type { Layout, ShardBox } from "../types";
import { About } from "./About";
import { Shape } from "./Shape";
import { Strip } from "./Strip";
import { AROUND, HEAD, MAP, matches, NARROW_COLUMN, shareText, TALLEST, WIDE_COLUMN } from "./drawing";
import { boxesBetween, compact, firstProblem, neighbour, readableHeight } from "./layout";

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
  const [size, attach, scroller] = useSize();
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

  // The middle stays in the middle when the zoom or the room changes.
  const before = useRef({ height, inSight });
  useLayoutEffect(() => {
    const element = scroller.current;
    const was = before.current;
    before.current = { height, inSight };
    if (element === null || was.height === height) return;
    const middle = (element.scrollTop + was.inSight / 2) / was.height;
    element.scrollTop = middle * height - inSight / 2;
    setPlace({ top: element.scrollTop, left: element.scrollLeft });
  }, [height, inSight, scroller]);

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
  }, [isMeasured, shownLayout, height, inSight, scroller]);

  // The right edge is now. It stays visible while generations are added.
  const isAtNow = useRef(true);
  useLayoutEffect(() => {
    if (isMeasured && isAtNow.current && scroller.current !== null) scroller.current.scrollLeft = width;
  }, [isMeasured, width, scroller]);

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
  // Only another search moves the picture: later responses find the same shards.
  const showFirst = useCallbackRef(() => {
    const [first] = found ?? [];
    if (first) show(first);
  });
  useEffect(() => showFirst(), [wanted, showFirst]);

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
      <PointerDetails hint="Hover over a shard, or use the arrow keys: left to its parents, right to its children. Press Enter to open its partition.">
        {shown && <About box={shown} />}
      </PointerDetails>
    </>
  );
}
