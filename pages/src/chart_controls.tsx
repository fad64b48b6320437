/** The controls that the charts share. */

import { Box, Button, ButtonGroup, Flex, Span, Text } from "@chakra-ui/react";

import { Dot } from "./widgets";
import type { Content, LegendEntry } from "./types";

/** A choice of a few options; the URL keeps it. */
export function Choice({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: string;
  options: [string, string][];
  onChange: (value: string) => void;
}) {
  return (
    <ButtonGroup size="xs" variant="outline" attached role="group" aria-label={label}>
      {options.map(([name, text]) => (
        <Button
          key={name}
          aria-pressed={name === value}
          variant={name === value ? "solid" : "outline"}
          colorPalette={name === value ? "brand" : "gray"}
          px={2.5}
          onClick={() => onChange(name)}
        >
          {text}
        </Button>
      ))}
    </ButtonGroup>
  );
}

/** The choice between a chart and the same data as a list. */
export function ViewChoice({ value, onChange }: { value: string; onChange: (value: string | null) => void }) {
  return (
    <Choice
      label="View"
      value={value}
      options={[
        ["picture", "Chart"],
        ["list", "List"],
      ]}
      onChange={(name) => onChange(name === "list" ? name : null)}
    />
  );
}

/** The meaning of a chart's colours and marks. */
export function Legend({ entries }: { entries: LegendEntry[] }) {
  return (
    <Flex
      as="ul"
      aria-label="Legend"
      listStyleType="none"
      wrap="wrap"
      columnGap={4}
      rowGap={1}
      fontSize="xs"
      color="fg.muted"
    >
      {entries.map(({ label, palette, count, sign }) => (
        <Flex as="li" key={label} align="center" gap={1.5}>
          {sign ?? <Dot palette={palette ?? "gray"} />}
          {count !== undefined && (
            <Span color="fg" fontVariantNumeric="tabular-nums">
              {count}
            </Span>
          )}
          {label}
        </Flex>
      ))}
    </Flex>
  );
}

/** The details of the item at the pointer or with the focus. They have a fixed place, so that nothing moves or is covered. */
export function PointerDetails({ children, hint }: { children?: Content; hint: string }) {
  return (
    <Box
      minH="74px"
      borderWidth={1}
      borderColor="border.emphasized"
      borderTopWidth={0}
      borderBottomRadius="md"
      bg="bg.muted"
      px={3}
      py={2}
      fontSize="sm"
      flexShrink={0}
      data-pointed
    >
      {children ?? <Text color="fg.muted">{hint}</Text>}
    </Box>
  );
}

/** Return a text, shortened to a width; "" if too little of it would fit. */
export function fittingText(text: string, width: number, perCharacter: number = 6.6) {
  const room = Math.floor(width / perCharacter);
  if (room < 3) return "";
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}
