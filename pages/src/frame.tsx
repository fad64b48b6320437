/** The frame of the pages of a source: its path, its freshness, its alarms, its tabs, and the latest message. */

import { Badge, Box, Button, Flex, Heading, IconButton, Portal, Stack, Status, Strong, Text } from "@chakra-ui/react";
import { useCallback, useEffect, useRef, useState } from "react";

import { useNow } from "./clock";
import { Icon } from "./icons";
import { usePause } from "./live";
import { MessageContext } from "./messages";
import { Loading } from "./problems";
import { segmentsOf } from "./states";
import { SuspendButton } from "./suspend_button";
import { capitalized, plural } from "./text";
import { duration } from "./time";
import { alarmTarget, PAGES, pathOf, ROUTE } from "./urls";
import { Warning } from "./warning";
import { RelativeTime, ManualLink, PageLink } from "./widgets";
import type { Alarm, ConnectionRow, SourceCard, Suspension } from "./schema";
import type { Content, Styles, Place, Live, Refreshed } from "./types";

/** Shapes of a chart have no outline of their own. */
const FOCUS = {
  "& .coordination-shape": { outline: "none" },
  "& .coordination-shape:focus-visible > rect:first-of-type": {
    stroke: "var(--chakra-colors-fg)",
    strokeWidth: "2.5px",
  },
};

/** A folded alarm: one line, cut off if it is longer. On a phone four lines, and nothing else that takes space. */
const FOLDED = {
  "& p": { minWidth: 0, mdDown: { fontSize: "13px", lineHeight: "17px" } },
  "& p span": { overflow: "hidden", md: { whiteSpace: "nowrap", textOverflow: "ellipsis" } },
  "& [data-text]": { mdDown: { lineClamp: 4 } },
  "& [data-manual], & [data-chevron]": { mdDown: { display: "none" } },
};
const FOLDED_HEIGHT = { base: "76px", md: "29px" };

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

/** The freshness of a page, and the button that pauses and resumes its updates. */
export function Freshness({ live }: { live: Live<any> }) {
  const [isPaused, toggle] = usePause();
  useNow(); // it counts down
  const problem = live?.problem ?? null;
  const left = live?.nextAt ? Math.max(1, Math.ceil((live.nextAt - Date.now()) / 1000)) : null;
  const [text, palette] = isPaused
    ? ["Paused", "gray"]
    : problem === null
      ? ["Live", "green"]
      : problem.kind === "session"
        ? ["Stopped", "red"]
        : [left === null ? "Retrying" : `Retrying in ${duration(left)}`, "orange"];
  return (
    <Flex align="center" gap={1} flexShrink={0} fontSize="sm" color="fg.muted">
      <Status.Root
        colorPalette={palette}
        size="sm"
        data-freshness={isPaused ? "paused" : problem === null ? "live" : "trying"}
      >
        <Status.Indicator />
        {text}
      </Status.Root>
      <IconButton
        size="xs"
        variant="ghost"
        aria-label={isPaused ? "Resume updates" : "Pause updates"}
        title={isPaused ? "Resume updates" : "Pause updates"}
        onClick={toggle}
      >
        <Icon name={isPaused ? "play" : "pause"} size={3.5} />
      </IconButton>
    </Flex>
  );
}

/** The path from the overview to a source. */
function Path({ connection, source }: { connection: string; source: string }) {
  return (
    <Box
      as="nav"
      aria-label="Path"
      fontSize="sm"
      color="fg.muted"
      display="flex"
      gap={1.5}
      alignItems="center"
      minW={0}
    >
      <PageLink to={ROUTE}>Leases</PageLink>
      <Icon name="chevron" size={3} />
      <PageLink to={`${ROUTE}?connection=${encodeURIComponent(connection)}`} minW={0} truncate>
        {connection}
      </PageLink>
      <Icon name="chevron" size={3} />
      <Text as="span" truncate aria-current="location" title={source} color="fg">
        {source}
      </Text>
    </Box>
  );
}

/** The tabs of a source, as links: each page has its URL. */
function Tabs({
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

/** Return whether a source has a page that only some sources have. A source that is not known yet may have it. */
function hasPage(card: SourceCard | null, name: string) {
  return card === null || card === undefined || card.pages.includes(name);
}

/**
 * The alarms of a source: the worst one, and the number of others, which can be unfolded.
 *
 * It always takes the same space, also without alarms, so that an alarm that appears or disappears moves nothing below
 * it from under the pointer.
 */
function Alarms({ card, place }: { card: SourceCard | null; place: Place }) {
  const [isOpen, setOpen] = useState(false);
  const isFolded = !isOpen;
  const alarms = (card?.alarms ?? []).filter((alarm) => alarm.about !== "suspended");
  const lines = [
    ...(card?.suspended ? [<Suspended key="suspended" suspended={card.suspended} />] : []),
    ...alarms.map((alarm, number) => (
      <AlarmLine key={`${alarm.about} ${number}`} alarm={alarm} place={place} isFolded={isFolded} />
    )),
  ];
  const others = lines.length - 1;
  return (
    <Flex
      as="section"
      aria-label="Alarms"
      data-alarms={lines.length}
      gap={2}
      mb={3}
      align="flex-start"
      flexShrink={0}
      minH={FOLDED_HEIGHT}
      h={isFolded ? FOLDED_HEIGHT : undefined}
    >
      <Stack gap={1} flex={1} minW={0} css={isFolded ? FOLDED : undefined}>
        {lines.length > 0 ? (isFolded ? lines[0] : lines) : card !== null && <NoAlarm />}
      </Stack>
      {lines.length > 0 && (
        <Button
          size="2xs"
          variant="ghost"
          h="29px"
          flexShrink={0}
          aria-expanded={isOpen}
          aria-label={isFolded && others > 0 ? `and ${others} more` : undefined}
          onClick={() => setOpen(!isOpen)}
        >
          {isOpen ? "Show less" : others > 0 ? <More count={others} /> : "Show all"}
        </Button>
      )}
    </Flex>
  );
}

/** The number of other lines, shorter on a phone. */
function More({ count }: { count: number }) {
  return (
    <>
      <Box as="span" hideBelow="md">
        {`and ${count} more`}
      </Box>
      <Box as="span" hideFrom="md">
        {`+${count}`}
      </Box>
    </>
  );
}

/** The line that is shown without alarms. */
function NoAlarm() {
  return (
    <Text fontSize="sm" color="fg.muted" px={2} py={1} data-no-alarm>
      No alarms
    </Text>
  );
}

/**
 * An alarm as a line. It links to its subject and to the manual. A word shows its level as well as a colour.
 *
 * @param props `isFolded` if its
 *   link to the manual stays on its line; else the link moves below a text that has little space
 */
export function AlarmLine({
  alarm,
  place,
  isFolded = false,
}: {
  alarm: Alarm;
  place: { connection: string; source: string };
  isFolded?: boolean;
}) {
  return (
    <Warning level={alarm.level}>
      <Flex as="span" columnGap={3} align="center" wrap={isFolded ? undefined : "wrap"}>
        <PageLink
          to={alarmTarget(place, alarm.about)}
          data-about={alarm.about}
          color="inherit"
          display="flex"
          justifyContent="space-between"
          alignItems="center"
          gap={2}
          flex={isFolded ? 1 : "1 1 240px"}
          minW={0}
        >
          <>
            <Text as="span" overflowWrap="anywhere" minW={0} data-text>
              {capitalized(alarm.text)}
            </Text>
            <Box as="span" flexShrink={0} data-chevron>
              <Icon name="chevron" size={3} />
            </Box>
          </>
        </PageLink>
        <ManualLink manual={alarm.manual} />
      </Flex>
    </Warning>
  );
}

function Suspended({ suspended }: { suspended: Suspension }) {
  const { since, by, reason } = suspended;
  return (
    <Flex
      as="p"
      gap={2}
      align="flex-start"
      fontSize="sm"
      color="purple.fg"
      bg="purple.subtle"
      borderRadius="sm"
      px={2}
      py={1}
      data-suspended
    >
      <Box as="span" pt="2px" display="flex">
        <Icon name="pause" />
      </Box>
      <Text as="span" overflowWrap="anywhere" minW={0} data-text>
        <Strong>{"Suspended "}</Strong>
        <RelativeTime instant={since} />
        {by ? ` by ${by}` : ""}
        {reason ? `: ${reason}` : ""}. Running jobs deliver what they have read and end. Press Resume to continue.
      </Text>
      <ManualLink topic="suspended" ms="auto" />
    </Flex>
  );
}

/** A sign that the statistics of a source are incomplete. */
export function PartialBadge({ card, ...rest }: { card: SourceCard } & Styles) {
  if (card.is_complete) return null;
  const title =
    "The source has more partitions than were examined. Parked partitions are all counted. Failing partitions, expired " +
    "leases, lag and throughput may be higher, and earlier completed partitions are not counted.";
  return (
    <Badge colorPalette="gray" variant="subtle" flexShrink={0} title={title} {...rest}>
      partial
    </Badge>
  );
}

/** The status bar of a source: the number of partitions in each state. */
export function StatusBar({ card, height = "10px" }: { card: SourceCard; height?: string }) {
  const segments = segmentsOf(card);
  const text =
    segments.length === 0 ? "No partitions" : segments.map((each) => `${each.count} ${each.label}`).join(", ");
  return (
    <Flex role="img" aria-label={text} h={height} gap="2px" borderRadius="full" overflow="hidden" bg="bg.emphasized">
      {segments.map((each) => (
        <Box
          key={each.state}
          title={`${plural(each.count, "partition")}: ${each.label}`}
          minW="4px"
          style={{
            flexGrow: each.count,
            flexBasis: 0,
            background: `var(--chakra-colors-${each.palette}-${each.palette === "gray" ? "500" : "solid"})`,
          }}
        />
      ))}
    </Flex>
  );
}

/** Set the title of the browser's tab, and restore it afterwards. @param name of a source */
export function useTitle(name: string | null) {
  useEffect(() => {
    let previous: string | null = null;
    // Airflow's own pages restore their titles a moment after they are left.
    const timer = setTimeout(() => {
      previous = document.title;
      document.title = [name, "Leases", previous].filter(Boolean).join(" - ");
    });
    return () => {
      clearTimeout(timer);
      if (previous !== null) document.title = previous;
    };
  }, [name]);
}

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
