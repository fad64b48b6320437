import { Span } from "@chakra-ui/react";

export function Value({ text, isStrong = false }: { text: string | null; isStrong?: boolean }) {
  if (text === null)
    return (
      <Span color="fg.muted" fontSize="xs">
        not set
      </Span>
    );
  return (
    <Span fontFamily="mono" fontSize="xs" overflowWrap="anywhere" fontWeight={isStrong ? "semibold" : undefined}>
      {text}
    </Span>
  );
}
