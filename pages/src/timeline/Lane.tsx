import { Box, chakra } from "@chakra-ui/react";
import { memo } from "react";

import { Shortened } from "../components/Shortened";
import { BarShape } from "./BarShape";
import type { DrawnLane } from "./bars";
import { BAR } from "./bars";
import { barsOf } from "./layout";

export const Lane = memo(function Lane({
  line,
  at,
  top,
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
}: DrawnLane) {
  const bars = barsOf(line.holdings, { ...window, width: chart });
  const y = (isNarrow ? 20 : 0) + (laneHeight - (isNarrow ? 20 : 0) - BAR) / 2;
  return (
    <Box
      position="absolute"
      insetInline={0}
      display="flex"
      flexDirection={isNarrow ? "column" : "row"}
      borderBottomWidth={1}
      borderColor="border"
      style={{ top, height: laneHeight }}
      data-lane={line.partition_key}
      data-key={line.partition_key}
    >
      <Box
        style={{ width: isNarrow ? chart : labelWidth, height: isNarrow ? 20 : laneHeight }}
        flexShrink={0}
        display="flex"
        alignItems="center"
        px={2}
        minW={0}
        fontSize="xs"
        position={isNarrow ? "absolute" : "static"}
        zIndex={1}
      >
        <chakra.button
          type="button"
          data-opens
          aria-haspopup="dialog"
          aria-label={line.partition_key}
          maxW="full"
          minW={0}
          display="flex"
          cursor="pointer"
          _hover={{ textDecoration: "underline" }}
          onClick={() => onOpen(line.partition_key)}
        >
          <Shortened text={line.partition_key} tail={20} />
        </chakra.button>
      </Box>
      <svg
        width={chart}
        height={laneHeight}
        style={{ flexShrink: 0, display: "block" }}
        role="group"
        aria-label={line.partition_key}
      >
        {ticks.map((tick) => (
          <line key={tick.at} x1={tick.x} x2={tick.x} y1={0} y2={laneHeight} stroke="var(--chakra-colors-border)" />
        ))}
        {bars.map((bar, index) => {
          const name = `${at} ${index}`;
          return (
            <BarShape
              key={name}
              name={name}
              partitionKey={line.partition_key}
              bar={bar}
              y={y}
              isActive={index === active}
              zone={zone}
              onPoint={onPoint}
              onOpen={onOpen}
            />
          );
        })}
      </svg>
    </Box>
  );
});
