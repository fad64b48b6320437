import { Button, Span } from "@chakra-ui/react";

import { countText } from "../format/text";

export function Toggle({
  name,
  label,
  count,
  isOn,
  palette = "brand",
  onClick,
}: {
  name: string;
  label: string;
  count?: number | null;
  isOn: boolean;
  palette?: string;
  onClick: () => void;
}) {
  const isQuiet = !count && !isOn;
  return (
    <Button
      size="2xs"
      px={2}
      h={7}
      variant={isOn ? "solid" : "outline"}
      colorPalette={isOn ? "brand" : "gray"}
      aria-pressed={isOn}
      data-filter={name}
      color={isOn ? undefined : isQuiet ? "fg.muted" : palette === "brand" ? "fg" : `${palette}.fg`}
      onClick={onClick}
    >
      {label}
      {count !== undefined && (
        <Span fontVariantNumeric="tabular-nums" fontWeight="normal" minW="3ch" textAlign="end">
          {countText(count)}
        </Span>
      )}
    </Button>
  );
}
