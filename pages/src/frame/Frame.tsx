import { Badge, Box, Flex, Heading } from "@chakra-ui/react";
import { useEffect, useRef } from "react";

import { SuspendButton } from "../actions/SuspendButton";
import type { ConnectionRow, SourceCard } from "../api/schema";
import { Loading } from "../components/Loading";
import type { Content, Place, Refreshed } from "../types";
import { Alarms } from "./Alarms";
import { Freshness } from "./Freshness";
import { PartialBadge } from "./PartialBadge";
import { Path } from "./Path";
import { Tabs } from "./Tabs";
import { useTitle } from "./shared";

/** The frame around a page of a source. */
export function Frame({
  place,
  card,
  live,
  connection,
  children,
}: {
  place: Place;
  card: SourceCard | null;
  live: Refreshed<SourceCard>;
  connection: ConnectionRow | null;
  children?: Content;
}) {
  const title = useRef<HTMLHeadingElement>(null);
  const hasResponded = card !== null || live.problem !== null;
  useTitle(place.source);
  useEffect(() => {
    // Airflow creates the page again when its path changes. Keyboard users continue from its title.
    if (document.activeElement === document.body && globalThis.history.length > 1)
      title.current?.focus({ preventScroll: true });
  }, [place.source]);
  return (
    <>
      <Flex justify="space-between" align="flex-start" gap={3} mb={2} flexShrink={0} wrap="wrap">
        <Box minW={0} flex="1 1 240px">
          <Path {...place} />
          <Flex align="center" gap={2} minW={0}>
            <Heading
              as="h1"
              size="xl"
              truncate
              ref={title}
              tabIndex={-1}
              outline="none"
              title={place.source}
              dir="auto"
            >
              {place.source}
            </Heading>
            {card?.kind && (
              <Badge variant="outline" colorPalette="gray" flexShrink={0}>
                {card.kind}
              </Badge>
            )}
            {card !== null && <PartialBadge card={card} />}
          </Flex>
        </Box>
        <Flex align="center" gap={2} flexShrink={0} minH={8} flexBasis={{ base: "100%", md: "auto" }}>
          <Freshness live={live} />
          {card !== null && <SuspendButton place={place} card={card} connection={connection} refresh={live.refresh} />}
        </Flex>
      </Flex>
      <Alarms card={card} place={place} />
      <Flex flex={1} minH={0} direction="column" position="relative" visibility={hasResponded ? undefined : "hidden"}>
        <Tabs {...place} card={card} />
        <Box flex={1} minH={0} display="flex" flexDirection="column">
          {children}
        </Box>
        {!hasResponded && (
          <Box position="absolute" insetX={0} top={0} visibility="visible">
            <Loading what="the source" />
          </Box>
        )}
      </Flex>
    </>
  );
}
