/** The overview: every source that the user may view, or every supervisor, those with problems first. */

import { AlarmLine, Freshness, PartialBadge, StatusBar, useTitle } from "./frame.js";
import {
  C,
  Fragment,
  h,
  memo,
  RouterLink,
  useCallback,
  useEffect,
  useLocation,
  useNavigate,
  useRef,
  useState,
} from "./host.js";
import { Icon } from "./icons.js";
import { useLive } from "./live.js";
import { Dot, Statistic } from "./widgets.js";
import { Choice } from "./chart_controls.js";
import { pathOf, withParameters } from "./urls.js";
import { ProblemPage, ProblemPart, Loading, EmptyState, LiveContent } from "./problems.js";
import { byUrgency, connectionRank, inOrder, segmentsOf, worstLevel } from "./states.js";
import { isUnhealthy } from "./supervisor_states.js";
import { Supervisors } from "./supervisors.js";
import { countText, plural, rateText, roughText } from "./text.js";
import { useNow } from "./clock.js";
import { duration, lagText, longestLeaseText, secondsUntil } from "./time.js";
import { useTypedText } from "./typing.js";
import { CompleteUntil } from "./watermark.js";

const BAR = 7;
const GAP = 2;
const TALL = 26;

/**
 * The number of partitions that were completed in each five minutes of the last hour.
 *
 * @param {{completed: (number|null)[]}} props
 */
function Trend({ completed }) {
  if (completed.every((count) => !count)) return null;
  const maximum = Math.max(1, ...completed.map((count) => count ?? 0));
  const sum = completed.reduce((/** @type {number} */ total, count) => total + (count ?? 0), 0);
  const text = `${plural(sum, "partition")} completed in the last hour`;
  return h(
    C.Flex,
    { align: "flex-end", gap: 2, flexShrink: 0, whiteSpace: "nowrap", title: `${text}; each bar is 5 min` },
    h(
      "svg",
      { width: completed.length * (BAR + GAP), height: TALL, role: "img", "aria-label": text },
      ...completed.map((count, index) => {
        const height = count ? Math.max(3, (count / maximum) * TALL) : 1;
        return h("rect", {
          key: index,
          x: index * (BAR + GAP),
          y: TALL - height,
          width: BAR,
          height,
          rx: 1,
          fill: count ? "var(--chakra-colors-green-solid)" : "var(--chakra-colors-border-emphasized)",
        });
      }),
    ),
    h(
      C.Text,
      { fontSize: "xs", color: "fg.muted", lineHeight: "1.1", pb: "1px" },
      `${roughText(sum)} completed`,
      h("br"),
      "in 1 h",
    ),
  );
}

/** @param {{card: Api.SourceCard}} props */
function Legend({ card }) {
  const segments = segmentsOf(card);
  return h(
    C.Flex,
    { wrap: "wrap", columnGap: 3, rowGap: 0.5, fontSize: "xs", color: "fg.muted", mt: 1.5, minH: 5 },
    segments.length === 0 && "No partitions yet.",
    ...segments.map((each) =>
      h(
        C.Flex,
        { key: each.state, as: "span", align: "center", gap: 1 },
        h(Dot, { palette: each.palette, size: "7px" }),
        h(C.Span, { color: "fg", fontVariantNumeric: "tabular-nums" }, roughText(each.count)),
        each.label.toLowerCase(),
      ),
    ),
  );
}

/** @param {{instant: string|null}} props */
function ExpiresIn({ instant }) {
  const now = useNow();
  const left = secondsUntil(instant, now);
  return left > 0 ? `the next expires in ${duration(left, { short: true })}` : "the next is overdue";
}

/** The summary of a source. The whole card is a link to it. */
const Card = memo(function Card(/** @type {{card: Api.SourceCard}} */ { card }) {
  const level = worstLevel(card);
  const accent =
    level === "error"
      ? "red.solid"
      : level === "warning"
        ? "orange.solid"
        : card.suspended
          ? "purple.solid"
          : "border.emphasized";
  return h(
    C.LinkBox,
    {
      as: "article",
      "aria-label": card.source,
      "data-source": card.source,
      borderWidth: 1,
      borderColor: "border.emphasized",
      borderStartWidth: 4,
      borderStartColor: accent,
      borderRadius: "md",
      bg: "bg",
      p: 4,
      minW: 0,
      display: "flex",
      flexDirection: "column",
      gap: 3,
      transition: "box-shadow 0.15s",
      _hover: { boxShadow: "md" },
      _focusWithin: { boxShadow: "md" },
    },
    h(
      C.Flex,
      { justify: "space-between", align: "flex-start", gap: 2, wrap: "wrap" },
      h(
        C.Box,
        { minW: 0, flex: "1 1 150px" },
        h(
          C.Heading,
          { as: "h3", size: "md", truncate: true, title: card.source, dir: "auto" },
          h(
            C.LinkOverlay,
            { asChild: true },
            h(RouterLink, { to: pathOf({ connection: card.connection_id, source: card.source }) }, card.source),
          ),
        ),
        h(
          C.Flex,
          { gap: 1.5, mt: 1, minH: 5, align: "center" },
          card.kind && h(C.Badge, { size: "xs", variant: "outline", colorPalette: "gray" }, card.kind),
          card.suspended &&
            h(
              C.Badge,
              { size: "xs", colorPalette: "purple", variant: "subtle", title: card.suspended.reason },
              "Suspended",
            ),
          h(PartialBadge, { card, size: "xs" }),
        ),
      ),
      h(Trend, { completed: card.completed }),
    ),
    card.alarms.length > 0 &&
      h(
        C.Stack,
        { gap: 1 },
        ...card.alarms
          .slice(0, 3)
          .map((alarm, number) =>
            h(AlarmLine, {
              key: `${alarm.about} ${number}`,
              alarm,
              place: { connection: card.connection_id, source: card.source },
            }),
          ),
        card.alarms.length > 3 &&
          h(C.Text, { fontSize: "xs", color: "fg.muted" }, `and ${card.alarms.length - 3} more`),
      ),
    h(C.Box, null, h(StatusBar, { card }), h(Legend, { card })),
    h(
      C.Grid,
      { as: "dl", templateColumns: "repeat(auto-fill, minmax(100px, 1fr))", gap: 3, mt: "auto" },
      h(Statistic, { name: "Lag" }, lagText(card.lag)),
      h(Statistic, { name: "Complete until" }, h(CompleteUntil, { watermark: card.watermark })),
      h(Statistic, { name: "Throughput" }, rateText(card.throughput)),
      h(Statistic, { name: "Workers" }, countText(card.workers)),
      h(
        Statistic,
        { name: "Longest wait" },
        card.oldest_waiting_seconds === null ? "–" : duration(card.oldest_waiting_seconds, { short: true }),
      ),
      h(
        Statistic,
        { name: "Longest lease" },
        longestLeaseText(card.oldest_lease),
      ),
      h(Statistic, { name: "Pending batches" }, countText(card.pending_sets)),
    ),
    card.pending_sets > 0 &&
      card.next_set_expires_at &&
      h(
        C.Text,
        { fontSize: "xs", color: "fg.muted", mt: -2 },
        "Acknowledgments: ",
        h(ExpiresIn, { instant: card.next_set_expires_at }),
      ),
  );
});

/**
 * @param {{
 *   connection: Api.ConnectionRow, show: "sources"|"supervisors", search: string, isAlone: boolean,
 *   onLive: (connection: string, live: Live<any>|null) => void,
 * }} props
 */
function Connection({ connection, show, search, isAlone, onLive }) {
  const live = useLive(
    connection.problem === null ? `connections/${encodeURIComponent(connection.connection_id)}/${show}` : null,
  );
  const { problem, nextAt, response } = live;
  const id = connection.connection_id;
  useEffect(() => onLive(id, live), [problem, nextAt, response, id, onLive]);
  useEffect(() => () => onLive(id, null), [id, onLive]);
  return h(
    C.Box,
    { as: "section", "aria-label": `Connection ${id}`, mb: 6 },
    h(
      C.Flex,
      { align: "baseline", gap: 2, mb: 2 },
      h(
        C.Heading,
        { as: "h2", size: "sm", color: "fg.muted", fontWeight: "semibold", overflowWrap: "anywhere", minW: 0 },
        id,
      ),
      !connection.may_change && h(C.Text, { fontSize: "xs", color: "fg.muted", flexShrink: 0 }, "read only"),
      response &&
        !isAlone &&
        h(C.Text, { fontSize: "xs", color: "fg.muted", flexShrink: 0 }, plural(response[show].length, show.slice(0, -1))),
    ),
    connection.problem !== null
      ? h(ProblemPart, {
          title: "This connection cannot be used",
          text: connection.problem,
          icon: "plug",
          kind: "refused",
          topic: "connection",
        })
      : h(LiveContent, {
          live,
          what: show,
          isPart: true,
          connection: id,
          rows: 3,
          children: (found) =>
            show === "sources"
              ? h(Cards, { key: show, cards: found.sources, search })
              : h(Supervisors, { key: show, connection, statuses: found.supervisors, search, refresh: live.refresh }),
        }),
  );
}

/** @param {{cards: Api.SourceCard[], search: string}} props */
function Cards({ cards, search }) {
  const found = cards.filter((card) => card.source.toLowerCase().includes(search.toLowerCase()));
  const shown = useRef(/** @type {string[]} */ ([]));
  const [isPointed, setPointed] = useState(false);
  // While the user points at a card, no card moves: the click would hit another one.
  if (!isPointed) shown.current = byUrgency(found).map((card) => card.source);
  const sorted = isPointed ? inOrder(found, shown.current) : byUrgency(found);
  if (cards.length === 0) {
    return h(EmptyState, {
      title: "No sources yet",
      text: "A source appears here after a DAG has created its first partitions. Start a run of its DAG.",
      icon: "tree",
    });
  }
  if (found.length === 0) return h(EmptyState, { title: "No source matches", text: `No source name contains “${search}”.`, kind: "empty" });
  return h(
    C.Grid,
    {
      templateColumns: "repeat(auto-fill, minmax(min(100%, 340px), 1fr))",
      gap: 4,
      onPointerEnter: () => setPointed(true),
      onPointerLeave: () => setPointed(false),
    },
    ...sorted.map((card) => h(Card, { key: card.source, card })),
  );
}

/** The page. */
export function Overview() {
  const { search } = useLocation();
  const navigate = useNavigate();
  const parameters = new URLSearchParams(search);
  const only = parameters.get("connection");
  const show = parameters.get("show") === "supervisors" ? "supervisors" : "sources";
  const live = useLive("connections", { every: 30 });
  const [known, onLive] = useResponses();
  const worst = known.find(([, each]) => each.problem !== null) ?? known[0];
  useTitle(null);
  /** @param {Record<string, Parameter>} changes */
  const change = (changes) =>
    navigate({ search: withParameters(globalThis.location.search, changes) }, { replace: true });
  const [text, setText] = useTypedText(parameters.get("q") ?? "", (typed) => change({ q: typed }));
  const responses = new Map(known.map(([id, { response }]) => [id, response]));
  /** @param {Api.ConnectionRow} each */
  const rank = (each) => {
    const response = responses.get(each.connection_id);
    return connectionRank(each, response?.sources ?? [], response?.supervisors?.some(isUnhealthy));
  };
  const connections = (live.response?.connections ?? [])
    .filter((/** @type {Api.ConnectionRow} */ each) => only === null || each.connection_id === only)
    .sort((/** @type {Api.ConnectionRow} */ a, /** @type {Api.ConnectionRow} */ b) => rank(a) - rank(b));
  return h(
    Fragment,
    null,
    h(
      C.Flex,
      { justify: "space-between", align: "center", gap: 3, mb: 4, wrap: "wrap" },
      h(
        C.Flex,
        { gap: 4, align: "center" },
        h(C.Heading, { as: "h1", size: "xl" }, "Leases"),
        h(Choice, {
          label: "Show",
          value: show,
          options: [
            ["sources", "Sources"],
            ["supervisors", "Supervisors"],
          ],
          onChange: (name) => change({ show: name === "sources" ? null : name }),
        }),
      ),
      h(
        C.Flex,
        { gap: 3, align: "center", flex: { base: "1 1 100%", md: "0 1 auto" } },
        h(
          C.InputGroup,
          { startElement: h(Icon, { name: "search" }), maxW: { md: "260px" } },
          h(C.Input, {
            size: "sm",
            type: "search",
            placeholder: "Find a source",
            "aria-label": "Find a source",
            value: text,
            onChange: (event) => setText(event.target.value),
          }),
        ),
        h(Freshness, { live: worst?.[1] ?? live }),
      ),
    ),
    only !== null &&
      h(
        C.Flex,
        { mb: 3, gap: 2, align: "center", fontSize: "sm", color: "fg.muted" },
        h(C.Text, { as: "span", minW: 0, overflowWrap: "anywhere" }, `Connection ${only} only`),
        h(
          C.Button,
          { flexShrink: 0, size: "2xs", variant: "outline", onClick: () => change({ connection: null }) },
          "Show all",
        ),
      ),
    live.response === null
      ? live.problem === null
        ? h(Loading, { what: "connections", rows: 4, height: 24 })
        : h(ProblemPage, { problem: live.problem, nextAt: live.nextAt, refresh: live.refresh })
      : connections.length === 0
        ? h(EmptyState, {
            title: "No coordination connection that you may view",
            text: "Leases are kept in the store of a connection of type “coordination”. Create one under Admin, Connections, or ask an Airflow administrator for “can read” on Connections.",
            icon: "plug",
            kind: "none",
          })
        : connections.map((/** @type {Api.ConnectionRow} */ connection) =>
            h(Connection, {
              key: `${show} ${connection.connection_id}`,
              connection,
              show,
              search: text,
              onLive,
              isAlone: connections.length === 1,
            }),
          ),
  );
}

/**
 * Keep the latest response of each connection; return them, and the function that sets one: null once the connection is
 * gone.
 *
 * @returns {[[string, Live<any>][], (connection: string, live: Live<any>|null) => void]}
 */
function useResponses() {
  const [known, setKnown] = useState(/** @type {Map<string, Live<any>>} */ (new Map()));
  const note = useCallback(
    (/** @type {string} */ id, /** @type {Live<any>|null} */ live) =>
      setKnown((before) => {
        const after = new Map(before);
        if (live === null) after.delete(id);
        else after.set(id, live);
        return after;
      }),
    [],
  );
  return [[...known], note];
}
