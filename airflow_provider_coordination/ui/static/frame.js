/** The frame of the pages of a source: its path, its freshness, its alarms, its tabs, and the latest message. */

import { C, Fragment, h, useCallback, useEffect, useRef, useState } from "./host.js";
import { Icon } from "./icons.js";
import { usePause } from "./live.js";
import { alarmTarget, PAGES, pathOf, ROUTE } from "./urls.js";
import { RelativeTime, ManualLink, PageLink } from "./widgets.js";
import { Loading } from "./problems.js";
import { segmentsOf } from "./states.js";
import { SuspendButton } from "./suspend_button.js";
import { MessageContext } from "./messages.js";
import { capitalized, plural } from "./text.js";
import { useNow } from "./clock.js";
import { duration } from "./time.js";
import { Warning } from "./warning.js";

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

/**
 * The root of the pages: it scrolls on its own, and shows messages.
 *
 * @param {{children?: Content} & Styles} props
 */
export function Root({ children, ...rest }) {
  const [message, setMessage] = useState(/** @type {{text: string}|null} */ (null));
  const showMessage = useCallback((/** @type {string} */ text) => setMessage({ text }), []);
  useEffect(() => {
    if (message === null) return undefined;
    const timer = setTimeout(() => setMessage(null), 8000);
    return () => clearTimeout(timer);
  }, [message]);
  return h(
    MessageContext.Provider,
    { value: showMessage },
    h(
      C.Box,
      {
        "data-coordination": true,
        h: "full",
        minH: 0,
        overflow: "auto",
        p: { base: 2, md: 4 },
        display: "flex",
        flexDirection: "column",
        color: "fg",
        bg: "bg",
        css: FOCUS,
        ...rest,
      },
      children,
    ),
    // As a child of the body, the status is announced while a dialog hides everything else.
    h(
      C.Portal,
      null,
      h(
        C.Box,
        {
          role: "status",
          "aria-live": "polite",
          position: "fixed",
          bottom: 4,
          insetInlineEnd: 4,
          zIndex: "toast",
          maxW: "calc(100vw - 32px)",
        },
        message &&
          h(
            C.Flex,
            {
              align: "center",
              gap: 2,
              px: 3,
              py: 2,
              borderWidth: 1,
              borderColor: "border.emphasized",
              borderRadius: "md",
              bg: "bg.panel",
              color: "fg",
              boxShadow: "md",
              fontSize: "sm",
            },
            h(C.Box, { color: "green.fg", display: "flex" }, h(Icon, { name: "check" })),
            h(C.Text, { as: "span", overflowWrap: "anywhere" }, message.text),
            h(
              C.IconButton,
              { size: "2xs", variant: "ghost", "aria-label": "Dismiss", onClick: () => setMessage(null) },
              h(Icon, { name: "close", size: 3 }),
            ),
          ),
      ),
    ),
  );
}

/**
 * The freshness of a page, and the button that pauses and resumes its updates.
 *
 * @param {{live: Live<any>}} props
 */
export function Freshness({ live }) {
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
  return h(
    C.Flex,
    { align: "center", gap: 1, flexShrink: 0, fontSize: "sm", color: "fg.muted" },
    h(
      C.Status.Root,
      {
        colorPalette: palette,
        size: "sm",
        "data-freshness": isPaused ? "paused" : problem === null ? "live" : "trying",
      },
      h(C.Status.Indicator),
      text,
    ),
    h(
      C.IconButton,
      {
        size: "xs",
        variant: "ghost",
        "aria-label": isPaused ? "Resume updates" : "Pause updates",
        title: isPaused ? "Resume updates" : "Pause updates",
        onClick: toggle,
      },
      h(Icon, { name: isPaused ? "play" : "pause", size: 3.5 }),
    ),
  );
}

/**
 * The path from the overview to a source.
 *
 * @param {{connection: string, source: string}} props
 */
function Path({ connection, source }) {
  return h(
    C.Box,
    {
      as: "nav",
      "aria-label": "Path",
      fontSize: "sm",
      color: "fg.muted",
      display: "flex",
      gap: 1.5,
      alignItems: "center",
      minW: 0,
    },
    h(PageLink, { to: ROUTE }, "Leases"),
    h(Icon, { name: "chevron", size: 3 }),
    h(PageLink, { to: `${ROUTE}?connection=${encodeURIComponent(connection)}`, minW: 0, truncate: true }, connection),
    h(Icon, { name: "chevron", size: 3 }),
    h(C.Text, { as: "span", truncate: true, "aria-current": "location", title: source, color: "fg" }, source),
  );
}

/**
 * The tabs of a source, as links: each page has its URL.
 *
 * @param {{connection: string, source: string, page: string, card: Api.SourceCard|null}} props
 */
function Tabs({ connection, source, page, card }) {
  const selected = useRef(/** @type {HTMLElement|null} */ (null));
  useEffect(() => {
    // In the next frame, as it needs the layout of the page.
    const frame = requestAnimationFrame(() =>
      selected.current?.scrollIntoView?.({ block: "nearest", inline: "nearest" }),
    );
    return () => cancelAnimationFrame(frame);
  }, []);
  /** @type {Record<string, number|undefined>} */
  const counted = { acknowledgments: card?.pending_sets, workers: card?.workers };
  return h(
    C.Box,
    {
      as: "nav",
      "aria-label": "Pages of this source",
      overflowX: "auto",
      overflowY: "hidden",
      borderBottomWidth: 1,
      borderColor: "border.emphasized",
      mb: 3,
      flexShrink: 0,
    },
    h(
      C.Flex,
      { as: "ul", listStyleType: "none", gap: { base: 0, lg: 2 } },
      ...PAGES.filter((each) => !each.isOptional || page === each.name || hasPage(card, each.name)).map((each) => {
        const isHere = each.name === page;
        return h(
          C.Box,
          { as: "li", key: each.name, flexShrink: 0, ref: isHere ? selected : undefined },
          h(
            PageLink,
            {
              to: pathOf({ connection, source, page: each.name }),
              "aria-current": isHere ? "page" : undefined,
              "data-page": each.name,
              display: "flex",
              alignItems: "center",
              gap: 1.5,
              h: "40px",
              px: { base: 2.5, lg: 4 },
              fontWeight: "bold",
              fontSize: "sm",
              color: isHere ? "fg" : "fg.muted",
              borderBottomWidth: 3,
              borderColor: isHere ? "border.info" : "transparent",
              _hover: { color: "fg", textDecoration: "none" },
              outlineOffset: "-2px",
            },
            h(
              Fragment,
              null,
              each.title,
              each.name in counted &&
                h(
                  C.Badge,
                  {
                    size: "xs",
                    variant: "subtle",
                    colorPalette: "gray",
                    fontVariantNumeric: "tabular-nums",
                    // It takes its space before there is anything to count, or the tabs beside it would move.
                    minW: "4ch",
                    justifyContent: "center",
                    visibility: counted[each.name] ? undefined : "hidden",
                  },
                  counted[each.name] ?? 0,
                ),
            ),
          ),
        );
      }),
    ),
  );
}

/**
 * Return whether a source has a page that only some sources have. A source that is not known yet may have it.
 *
 * @param {Api.SourceCard|null} card
 * @param {string} name
 */
function hasPage(card, name) {
  return card === null || card === undefined || card.pages.includes(name);
}

/**
 * The alarms of a source: the worst one, and the number of others, which can be unfolded.
 *
 * It always takes the same space, also without alarms, so that an alarm that appears or disappears moves nothing below
 * it from under the pointer.
 *
 * @param {{card: Api.SourceCard|null, place: Place}} props
 */
function Alarms({ card, place }) {
  const [isOpen, setOpen] = useState(false);
  const isFolded = !isOpen;
  const alarms = (card?.alarms ?? []).filter((alarm) => alarm.about !== "suspended");
  const lines = [
    ...(card?.suspended ? [h(Suspended, { key: "suspended", suspended: card.suspended })] : []),
    ...alarms.map((alarm, number) => h(AlarmLine, { key: `${alarm.about} ${number}`, alarm, place, isFolded })),
  ];
  const others = lines.length - 1;
  return h(
    C.Flex,
    {
      as: "section",
      "aria-label": "Alarms",
      "data-alarms": lines.length,
      gap: 2,
      mb: 3,
      align: "flex-start",
      flexShrink: 0,
      minH: FOLDED_HEIGHT,
      h: isFolded ? FOLDED_HEIGHT : undefined,
    },
    h(
      C.Stack,
      { gap: 1, flex: 1, minW: 0, css: isFolded ? FOLDED : undefined },
      lines.length > 0 ? (isFolded ? lines[0] : lines) : card !== null && h(NoAlarm),
    ),
    lines.length > 0 &&
      h(
        C.Button,
        {
          size: "2xs",
          variant: "ghost",
          h: "29px",
          flexShrink: 0,
          "aria-expanded": isOpen,
          "aria-label": isFolded && others > 0 ? `and ${others} more` : undefined,
          onClick: () => setOpen(!isOpen),
        },
        isOpen ? "Show less" : others > 0 ? h(More, { count: others }) : "Show all",
      ),
  );
}

/** The number of other lines, shorter on a phone. @param {{count: number}} props */
function More({ count }) {
  return h(
    Fragment,
    null,
    h(C.Box, { as: "span", hideBelow: "md" }, `and ${count} more`),
    h(C.Box, { as: "span", hideFrom: "md" }, `+${count}`),
  );
}

/** The line that is shown without alarms. */
function NoAlarm() {
  return h(C.Text, { fontSize: "sm", color: "fg.muted", px: 2, py: 1, "data-no-alarm": true }, "No alarms");
}

/**
 * An alarm as a line. It links to its subject and to the manual. A word shows its level as well as a colour.
 *
 * @param {{alarm: Api.Alarm, place: {connection: string, source: string}, isFolded?: boolean}} props `isFolded` if its
 *   link to the manual stays on its line; else the link moves below a text that has little space
 */
export function AlarmLine({ alarm, place, isFolded = false }) {
  return h(
    Warning,
    { level: alarm.level },
    h(
      C.Flex,
      { as: "span", columnGap: 3, align: "center", wrap: isFolded ? undefined : "wrap" },
      h(
        PageLink,
        {
          to: alarmTarget(place, alarm.about),
          "data-about": alarm.about,
          color: "inherit",
          display: "flex",
          justifyContent: "space-between",
          alignItems: "center",
          gap: 2,
          flex: isFolded ? 1 : "1 1 240px",
          minW: 0,
        },
        h(
          Fragment,
          null,
          h(C.Text, { as: "span", overflowWrap: "anywhere", minW: 0, "data-text": true }, capitalized(alarm.text)),
          h(C.Box, { as: "span", flexShrink: 0, "data-chevron": true }, h(Icon, { name: "chevron", size: 3 })),
        ),
      ),
      h(ManualLink, { manual: alarm.manual }),
    ),
  );
}

/** @param {{suspended: Api.Suspension}} props */
function Suspended({ suspended }) {
  const { since, by, reason } = suspended;
  return h(
    C.Flex,
    {
      as: "p",
      gap: 2,
      align: "flex-start",
      fontSize: "sm",
      color: "purple.fg",
      bg: "purple.subtle",
      borderRadius: "sm",
      px: 2,
      py: 1,
      "data-suspended": true,
    },
    h(C.Box, { as: "span", pt: "2px", display: "flex" }, h(Icon, { name: "pause" })),
    h(
      C.Text,
      { as: "span", overflowWrap: "anywhere", minW: 0, "data-text": true },
      h(C.Strong, null, "Suspended "),
      h(RelativeTime, { instant: since }),
      by ? ` by ${by}` : "",
      reason ? `: ${reason}` : "",
      ". Running jobs deliver what they have read and end. Press Resume to continue.",
    ),
    h(ManualLink, { topic: "suspended", ms: "auto" }),
  );
}

/** A sign that the statistics of a source are incomplete. @param {{card: Api.SourceCard} & Styles} props */
export function PartialBadge({ card, ...rest }) {
  if (card.is_complete) return null;
  const title =
    "The source has more partitions than were examined. Parked partitions are all counted. Failing partitions, expired " +
    "leases, lag and throughput may be higher, and earlier completed partitions are not counted.";
  return h(C.Badge, { colorPalette: "gray", variant: "subtle", flexShrink: 0, title, ...rest }, "partial");
}

/**
 * The status bar of a source: the number of partitions in each state.
 *
 * @param {{card: Api.SourceCard, height?: string}} props
 */
export function StatusBar({ card, height = "10px" }) {
  const segments = segmentsOf(card);
  const text =
    segments.length === 0 ? "No partitions" : segments.map((each) => `${each.count} ${each.label}`).join(", ");
  return h(
    C.Flex,
    {
      role: "img",
      "aria-label": text,
      h: height,
      gap: "2px",
      borderRadius: "full",
      overflow: "hidden",
      bg: "bg.emphasized",
    },
    ...segments.map((each) =>
      h(C.Box, {
        key: each.state,
        title: `${plural(each.count, "partition")}: ${each.label}`,
        minW: "4px",
        style: {
          flexGrow: each.count,
          flexBasis: 0,
          background: `var(--chakra-colors-${each.palette}-${each.palette === "gray" ? "500" : "solid"})`,
        },
      }),
    ),
  );
}

/** Set the title of the browser's tab, and restore it afterwards. @param {string|null} name of a source */
export function useTitle(name) {
  useEffect(() => {
    /** @type {string|null} */
    let previous = null;
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

/**
 * The frame around a page of a source.
 *
 * @param {{
 *   place: Place, card: Api.SourceCard|null, live: Refreshed<Api.SourceCard>, connection: Api.ConnectionRow|null,
 *   children?: Content,
 * }} props
 */
export function Frame({ place, card, live, connection, children }) {
  const title = useRef(/** @type {HTMLElement|null} */ (null));
  const hasResponded = card !== null || live.problem !== null;
  useTitle(place.source);
  useEffect(() => {
    // Airflow creates the page again when its path changes. Keyboard users continue from its title.
    if (document.activeElement === document.body && globalThis.history.length > 1)
      title.current?.focus({ preventScroll: true });
  }, [place.source]);
  return h(
    Fragment,
    null,
    h(
      C.Flex,
      { justify: "space-between", align: "flex-start", gap: 3, mb: 2, flexShrink: 0, wrap: "wrap" },
      h(
        C.Box,
        { minW: 0, flex: "1 1 240px" },
        h(Path, place),
        h(
          C.Flex,
          { align: "center", gap: 2, minW: 0 },
          h(
            C.Heading,
            {
              as: "h1",
              size: "xl",
              truncate: true,
              ref: title,
              tabIndex: -1,
              outline: "none",
              title: place.source,
              dir: "auto",
            },
            place.source,
          ),
          card?.kind && h(C.Badge, { variant: "outline", colorPalette: "gray", flexShrink: 0 }, card.kind),
          card !== null && h(PartialBadge, { card }),
        ),
      ),
      h(
        C.Flex,
        // It has the height of its buttons before they appear, and on a phone a line of its own.
        { align: "center", gap: 2, flexShrink: 0, minH: 8, flexBasis: { base: "100%", md: "auto" } },
        h(Freshness, { live }),
        card !== null && h(SuspendButton, { place, card, connection, refresh: live.refresh }),
      ),
    ),
    h(Alarms, { card, place }),
    h(
      C.Flex,
      // What depends on the first response appears together with it; later responses move nothing.
      { flex: 1, minH: 0, direction: "column", position: "relative", visibility: hasResponded ? undefined : "hidden" },
      h(Tabs, { ...place, card }),
      h(C.Box, { flex: 1, minH: 0, display: "flex", flexDirection: "column" }, children),
      !hasResponded &&
        h(C.Box, { position: "absolute", insetX: 0, top: 0, visibility: "visible" }, h(Loading, { what: "the source" })),
    ),
  );
}
