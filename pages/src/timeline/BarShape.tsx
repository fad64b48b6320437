import { memo } from "react";

import { fittingText } from "../chart/fittingText";
import { ownerLabel } from "../format/text";
import { areaOf, ENDS, fillOf, stateOf } from "../states";
import type { DrawnBar } from "./bars";
import { ariaLabelOf, BAR, TEXT } from "./bars";
import { isProblem, ownerPalette } from "./layout";

export const BarShape = memo(function BarShape({
  partitionKey,
  bar,
  y,
  isActive,
  zone,
  name,
  onPoint,
  onOpen,
}: DrawnBar) {
  const { holding, x, width } = bar;
  const colours = areaOf(ownerPalette(holding.owner?.name ?? ""));
  const end = stateOf(holding.end, ENDS);
  const text = fittingText(ownerLabel(holding.owner), width - 12, 6.2);
  const cap = Math.min(4, width);
  const shape = (
    <g
      role="button"
      tabIndex={isActive ? 0 : -1}
      aria-label={ariaLabelOf(partitionKey, bar, zone)}
      data-bar={name}
      data-end={holding.end}
      className="coordination-shape"
      style={{ cursor: "pointer" }}
      onPointerEnter={() => onPoint(name)}
      onFocus={() => onPoint(name, true)}
      onClick={() => onOpen(partitionKey)}
    >
      <rect
        x={x}
        y={y}
        width={width}
        height={BAR}
        rx={Math.min(3, width / 2)}
        fill={width < 8 ? colours.stroke : colours.fill}
        stroke={colours.stroke}
        strokeWidth={width < 8 ? 0 : 1}
      />
      {!bar.endsAfter && holding.ended_at !== null && (
        <rect x={x + width - cap} y={y} width={cap} height={BAR} fill={fillOf(end.palette)} />
      )}
      {isProblem(holding.end) && !bar.endsAfter && (
        <path
          d={`M${x + width - 5} ${y - 3} l5 -0 l5 0 l-5 6 z`}
          fill={fillOf(end.palette)}
          stroke="var(--chakra-colors-bg)"
          strokeWidth={1}
        />
      )}
    </g>
  );
  // Beside the button, not in it: the label of the button contains it.
  return (
    <>
      {shape}
      {text !== "" && (
        <text x={x + 7} y={y + 13} fill={colours.text} aria-hidden style={TEXT}>
          {text}
        </text>
      )}
    </>
  );
});
