import { memo } from "react";

import { fittingText } from "../chart/fittingText";
import { shardLabel } from "../format/text";
import { lagText } from "../format/time";
import { areaOf, stateOf } from "../states";
import type { DrawnShape } from "./drawing";
import { ariaLabelOf, TEXT } from "./drawing";

export const Shape = memo(function Shape({
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
