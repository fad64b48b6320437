import { Box, Span, Text } from "@chakra-ui/react";

import type { Content, Styles } from "../types";

/** A statistic with its name. */
export function Statistic({
  name,
  children,
  note,
  ...rest
}: { name: string; children?: Content; note?: Content } & Styles) {
  return (
    <Box minW={0} {...rest}>
      <Text as="dt" fontSize="xs" color="fg.muted" whiteSpace="nowrap">
        {name}
      </Text>
      <Text as="dd" fontSize="md" fontWeight="semibold" fontVariantNumeric="tabular-nums" whiteSpace="nowrap">
        {children}
        {note && (
          <Span color="fg.muted" fontWeight="normal" fontSize="xs">
            {` ${note}`}
          </Span>
        )}
      </Text>
    </Box>
  );
}
