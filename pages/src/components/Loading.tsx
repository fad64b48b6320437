import { Skeleton, Stack, VisuallyHidden } from "@chakra-ui/react";

/** The placeholder of something that loads. */
export function Loading({ what, rows = 6, height = 9 }: { what: string; rows?: number; height?: number }) {
  return (
    <Stack gap={2} aria-busy>
      <VisuallyHidden role="status">{`Loading ${what}`}</VisuallyHidden>
      {Array.from({ length: rows }, (_, index) => (
        <Skeleton key={index} height={height} opacity={1 - index / (rows + 1)} />
      ))}
    </Stack>
  );
}
