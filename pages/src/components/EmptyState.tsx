import { EmptyState as ChakraEmptyState } from "@chakra-ui/react";

import type { Content } from "../types";
import { Icon } from "./Icon";

/** The reason why there is nothing to show. */
export function EmptyState({
  title,
  text,
  icon = "search",
  kind,
  role,
  children,
}: {
  title: string;
  text?: Content;
  icon?: string;
  kind?: string;
  role?: string;
  children?: Content;
}) {
  return (
    <ChakraEmptyState.Root role={role} data-problem={kind} py={10}>
      <ChakraEmptyState.Content maxW="lg" mx="auto">
        <ChakraEmptyState.Indicator color="fg.muted">
          <Icon name={icon} size={8} />
        </ChakraEmptyState.Indicator>
        <ChakraEmptyState.Title as="h2" textAlign="center">
          {title}
        </ChakraEmptyState.Title>
        {text && (
          <ChakraEmptyState.Description textAlign="center" color="fg.muted" overflowWrap="anywhere">
            {text}
          </ChakraEmptyState.Description>
        )}
        {children}
      </ChakraEmptyState.Content>
    </ChakraEmptyState.Root>
  );
}
