import { Box, Stack, Text } from "@chakra-ui/react";
import { useEffect, useRef } from "react";

import type { Content } from "../types";
import { LISTED } from "./useAction";

/** The outcomes of an action that the user should read, one by one. */
export function Outcomes({
  title,
  items,
  children,
}: {
  title: string;
  items: { key: string; palette?: string; outcome?: string; content: Content }[];
  children?: Content;
}) {
  // The element with the focus is gone: screen readers continue here.
  const top = useRef<HTMLDivElement>(null);
  useEffect(() => top.current?.focus(), []);
  return (
    <Stack gap={3} ref={top} tabIndex={-1} outline="none" role="status" data-results>
      <Text fontWeight="semibold">{title}</Text>
      <Stack as="ul" gap={2} listStyleType="none" fontSize="sm">
        {items.slice(0, LISTED).map(({ key, palette = "gray", outcome, content }) => (
          <Box
            as="li"
            key={key}
            borderStartWidth={3}
            borderColor={`${palette}.solid`}
            ps={2}
            overflowWrap="anywhere"
            data-outcome={outcome}
          >
            {content}
          </Box>
        ))}
        {items.length > LISTED && (
          <Text as="li" color="fg.muted">
            {`and ${items.length - LISTED} more`}
          </Text>
        )}
      </Stack>
      {children}
    </Stack>
  );
}
