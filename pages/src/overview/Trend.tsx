import { Flex, Text } from "@chakra-ui/react";

import { plural, roughText } from "../format/text";

const BAR = 7;
const GAP = 2;
const TALL = 26;

/** The number of partitions that were completed in each five minutes of the last hour. */
export function Trend({ completed }: { completed: (number | null)[] }) {
  if (completed.every((count) => !count)) return null;
  const maximum = Math.max(1, ...completed.map((count) => count ?? 0));
  const sum = completed.reduce((total: number, count) => total + (count ?? 0), 0);
  const text = `${plural(sum, "partition")} completed in the last hour`;
  return (
    <Flex align="flex-end" gap={2} flexShrink={0} whiteSpace="nowrap" title={`${text}; each bar is 5 min`}>
      <svg width={completed.length * (BAR + GAP)} height={TALL} role="img" aria-label={text}>
        {completed.map((count, index) => {
          const height = count ? Math.max(3, (count / maximum) * TALL) : 1;
          return (
            <rect
              key={index}
              x={index * (BAR + GAP)}
              y={TALL - height}
              width={BAR}
              height={height}
              rx={1}
              fill={count ? "var(--chakra-colors-green-solid)" : "var(--chakra-colors-border-emphasized)"}
            />
          );
        })}
      </svg>
      <Text fontSize="xs" color="fg.muted" lineHeight="1.1" pb="1px">
        {`${roughText(sum)} completed`}
        <br />
        in 1 h
      </Text>
    </Flex>
  );
}
