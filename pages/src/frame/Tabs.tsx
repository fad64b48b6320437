import { Badge, Box, Flex } from "@chakra-ui/react";
import { useEffect, useRef } from "react";

import type { SourceCard } from "../api/schema";
import { PageLink } from "../components/PageLink";
import { PAGE_COMPONENTS } from "../pages";
import { PAGES, pathOf } from "../urls";
import { hasPage } from "./shared";

/** The tabs of a source, as links: each page has its URL. */
export function Tabs({
  connection,
  source,
  page,
  card,
}: {
  connection: string;
  source: string;
  page: string;
  card: SourceCard | null;
}) {
  const selected = useRef<HTMLElement>(null);
  useEffect(() => {
    // In the next frame, as it needs the layout of the page.
    const frame = requestAnimationFrame(() =>
      selected.current?.scrollIntoView?.({ block: "nearest", inline: "nearest" }),
    );
    return () => cancelAnimationFrame(frame);
  }, []);

  const counted: Record<string, number | undefined> = { acknowledgments: card?.pending_sets, workers: card?.workers };
  return (
    <Box
      as="nav"
      aria-label="Pages of this source"
      overflowX="auto"
      overflowY="hidden"
      borderBottomWidth={1}
      borderColor="border.emphasized"
      mb={3}
      flexShrink={0}
    >
      <Flex as="ul" listStyleType="none" gap={{ base: 0, lg: 2 }}>
        {PAGES.filter((each) => !each.isOptional || page === each.name || hasPage(card, each.name)).map((each) => {
          const isHere = each.name === page;
          return (
            <Box as="li" key={each.name} flexShrink={0} ref={isHere ? selected : undefined}>
              <PageLink
                to={pathOf({ connection, source, page: each.name })}
                aria-current={isHere ? "page" : undefined}
                data-page={each.name}
                // Its code is there when the click comes.
                onPointerEnter={PAGE_COMPONENTS[each.name].preload}
                onFocus={PAGE_COMPONENTS[each.name].preload}
                display="flex"
                alignItems="center"
                gap={1.5}
                h="40px"
                px={{ base: 2.5, lg: 4 }}
                fontWeight="bold"
                fontSize="sm"
                color={isHere ? "fg" : "fg.muted"}
                borderBottomWidth={3}
                borderColor={isHere ? "border.info" : "transparent"}
                _hover={{ color: "fg", textDecoration: "none" }}
                outlineOffset="-2px"
              >
                <>
                  {each.title}
                  {each.name in counted && (
                    <Badge
                      size="xs"
                      variant="subtle"
                      colorPalette="gray"
                      fontVariantNumeric="tabular-nums"
                      // It takes its space before there is anything to count, or the tabs beside it would move.
                      minW="4ch"
                      justifyContent="center"
                      visibility={counted[each.name] ? undefined : "hidden"}
                    >
                      {counted[each.name] ?? 0}
                    </Badge>
                  )}
                </>
              </PageLink>
            </Box>
          );
        })}
      </Flex>
    </Box>
  );
}
