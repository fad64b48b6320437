import type { PointerEvent } from "react";

import { fillOf, stateOf } from "../states";
import type { PlacedHole, ShardBox } from "../types";
import { MAP } from "./drawing";

/** The whole stream as a strip, with the visible part marked. */
export function Strip({
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
