import { Box, Flex, IconButton, Portal, Text } from "@chakra-ui/react";
import { useCallback, useEffect, useState } from "react";

import { Icon } from "../components/Icon";
import { MessageContext } from "../components/useMessage";
import type { Content, Styles } from "../types";
import { FOCUS } from "./shared";

/** The root of the pages: it scrolls on its own, and shows messages. */
export function Root({ children, ...rest }: { children?: Content } & Styles) {
  const [message, setMessage] = useState<{ text: string } | null>(null);
  const showMessage = useCallback((text: string) => setMessage({ text }), []);
  useEffect(() => {
    if (message === null) return undefined;
    const timer = setTimeout(() => setMessage(null), 8000);
    return () => clearTimeout(timer);
  }, [message]);
  return (
    <MessageContext.Provider value={showMessage}>
      <Box
        data-coordination
        h="full"
        minH={0}
        overflow="auto"
        p={{ base: 2, md: 4 }}
        display="flex"
        flexDirection="column"
        color="fg"
        bg="bg"
        css={FOCUS}
        {...rest}
      >
        {children}
      </Box>
      {/* As a child of the body, the status is announced while a dialog hides everything else. */}
      <Portal>
        <Box
          role="status"
          aria-live="polite"
          position="fixed"
          bottom={4}
          insetInlineEnd={4}
          zIndex="toast"
          maxW="calc(100vw - 32px)"
        >
          {message && (
            <Flex
              align="center"
              gap={2}
              px={3}
              py={2}
              borderWidth={1}
              borderColor="border.emphasized"
              borderRadius="md"
              bg="bg.panel"
              color="fg"
              boxShadow="md"
              fontSize="sm"
            >
              <Box color="green.fg" display="flex">
                <Icon name="check" />
              </Box>
              <Text as="span" overflowWrap="anywhere">
                {message.text}
              </Text>
              <IconButton size="2xs" variant="ghost" aria-label="Dismiss" onClick={() => setMessage(null)}>
                <Icon name="close" size={3} />
              </IconButton>
            </Flex>
          )}
        </Box>
      </Portal>
    </MessageContext.Provider>
  );
}
