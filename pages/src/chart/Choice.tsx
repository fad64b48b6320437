import { Button, ButtonGroup } from "@chakra-ui/react";

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
