/** The timeline: which owner held which partition and when, expired leases, and takeovers. */

import { request, clock } from "./api.js";
import { C, Fragment, h, useCallback } from "./host.js";
import { Icon } from "./icons.js";
import { usePolling } from "./live.js";
import { ViewChoice, Choice, Legend } from "./chart_controls.js";
import { Chip, Instant, Owner, Shortened, PageLink } from "./widgets.js";
import { sourceApi, withParameters } from "./urls.js";
import { EmptyState, LiveContent } from "./problems.js";
import { SmallTable } from "./small_table.js";
import { ENDS } from "./states.js";
import { plural } from "./text.js";
import { useZone } from "./clock.js";
import { formatInstant } from "./time.js";
import { Chart } from "./timeline_chart.js";
import { windowOf, WINDOWS } from "./timeline_layout.js";
import { useTypedText } from "./typing.js";

const LIMIT = 200;
const REMEMBERED = 6;
/** The past changes little: a worker may write its history a moment later. */
const PAST_EVERY_SECONDS = 30;
/** The latest state of windows: Airflow creates the page again when the user returns to it. */
/** @type {Map<string, Api.Timeline>} */
const latest = new Map();

/**
 * Keep a window fresh: one that ends now moves with the time.
 *
 * @param {Place} place
 * @param {URLSearchParams} parameters
 * @param {boolean} isLive
 */
function useWindow(place, parameters, isLive) {
  const [name, until, text] = ["window", "until", "search"].map((each) => parameters.get(each) ?? "");
  const key = JSON.stringify([place.connection, place.source, name, until, text]);
  const poll = useCallback(
    /** @param {AbortSignal} signal */
    async (signal) => {
      const window = windowOf(new URLSearchParams({ window: name, until }), clock.now());
      const query = new URLSearchParams({
        since: new Date(window.since).toISOString(),
        until: new Date(window.until).toISOString(),
        limit: String(LIMIT),
      });
      if (text !== "") query.set("search", text);
      const response = await request(sourceApi(place.connection, place.source, `timeline?${query}`), { signal });
      latest.delete(key);
      latest.set(key, response);
      if (latest.size > REMEMBERED) latest.delete(latest.keys().next().value ?? "");
    },
    [key],
  );
  return { ...usePolling(poll, isLive ? {} : { every: PAST_EVERY_SECONDS }), response: latest.get(key) ?? null };
}

/** @param {{response: Api.Timeline, search: string}} props */
function ListView({ response, search }) {
  const rows = response.partitions
    .flatMap((line) =>
      line.holdings.map((holding, index) => ({
        key: `${line.partition_key} ${index}`,
        partition: line.partition_key,
        holding,
      })),
    )
    .sort((a, b) => ((a.holding.began_at ?? "") < (b.holding.began_at ?? "") ? 1 : -1));
  return h(
    C.Box,
    { overflow: "auto", flex: 1, minH: 0 },
    h(SmallTable, {
      label: "Owners of partitions over time",
      rows,
      keyOf: (row) => row.key,
      columns: [
        {
          name: "partition",
          title: "Partition",
          cell: (row) =>
            h(
              PageLink,
              {
                to: { search: withParameters(search, { partition: row.partition }) },
                minW: 0,
                maxW: "full",
                "aria-label": row.partition,
              },
              h(Shortened, { text: row.partition }),
            ),
        },
        { name: "owner", title: "Owner", cell: ({ holding }) => h(Owner, { owner: holding.owner }) },
        { name: "began", title: "From", cell: ({ holding }) => h(Instant, { instant: holding.began_at }) },
        {
          name: "ended",
          title: "To",
          cell: ({ holding }) =>
            holding.ended_at === null ? "now" : h(Instant, { instant: holding.ended_at, withAge: false }),
        },
        { name: "end", title: "Ended", cell: ({ holding }) => h(Chip, { state: holding.end, states: ENDS }) },
        {
          name: "reason",
          title: "Reason",
          cell: ({ holding }) =>
            h(
              C.Text,
              { overflowWrap: "anywhere", fontSize: "xs" },
              holding.reason,
              holding.by ? ` (${holding.by})` : "",
            ),
        },
      ],
    }),
  );
}

/**
 * The page.
 *
 * @param {{place: Place, parameters: URLSearchParams, change: Change, search: string}} props
 */
export function TimelinePage({ place, parameters, change, search }) {
  const zone = useZone();
  const window = windowOf(parameters, clock.now());
  const live = useWindow(place, parameters, window.isLive);
  const isList = parameters.get("as") === "list";
  const searched = parameters.get("search") ?? "";
  const [text, setText] = useTypedText(searched, (typed) => change({ search: typed }));
  const onOpen = useCallback((/** @type {string} */ key) => change({ partition: key }, { keep: true }), [change]);
  /** @param {number} share */
  const move = (share) => {
    const until = window.until + share * WINDOWS[window.name] * 1000;
    change({ until: until >= clock.now() ? null : new Date(until).toISOString() });
  };
  return h(
    C.Flex,
    { direction: "column", flex: 1, minH: 0, gap: 2 },
    h(
      C.Flex,
      { gap: 2, wrap: "wrap", align: "center" },
      h(C.Input, {
        size: "sm",
        type: "search",
        w: { base: "full", sm: "220px" },
        "aria-label": "Key contains",
        placeholder: "Key contains",
        value: text,
        onChange: (event) => setText(event.target.value),
      }),
      h(Choice, {
        label: "Time range",
        value: window.name,
        options: Object.keys(WINDOWS).map((name) => /** @type {[string, string]} */ ([name, name])),
        onChange: (name) => change({ window: name === "1h" ? null : name }),
      }),
      h(
        C.ButtonGroup,
        { size: "xs", variant: "outline", attached: true, role: "group", "aria-label": "Move in time" },
        h(C.Button, { onClick: () => move(-0.5) }, h(C.Span, { "aria-hidden": true }, "‹"), "Earlier"),
        h(
          C.Button,
          { onClick: () => move(0.5), disabled: window.isLive },
          "Later",
          h(C.Span, { "aria-hidden": true }, "›"),
        ),
        h(C.Button, { onClick: () => change({ until: null }), "aria-pressed": window.isLive }, "Now"),
      ),
      h(ViewChoice, { value: isList ? "list" : "picture", onChange: (value) => change({ as: value }) }),
      h(
        C.Text,
        { fontSize: "xs", color: "fg.muted", ms: { xl: "auto" } },
        window.isLive
          ? `last ${window.name}`
          : `${formatInstant(new Date(window.since).toISOString(), zone)} to ${formatInstant(new Date(window.until).toISOString(), zone)}`,
        ` · ${zone}`,
      ),
    ),
    h(LiveContent, {
      live,
      what: "the timeline",
      connection: place.connection,
      rows: 10,
      children: (response) =>
        h(
          Fragment,
          { key: "response" },
          !response.has_history &&
            h(
              C.Flex,
              { gap: 2, align: "center", fontSize: "sm", color: "fg.muted" },
              h(Icon, { name: "alert" }),
              "No history is kept: only current leases are shown. Set history_days of the connection above 0.",
            ),
          !response.complete &&
            h(
              C.Text,
              { fontSize: "sm", color: "fg.muted" },
              `Incomplete: only ${plural(response.partitions.length, "partition")} shown. Search, or choose a shorter time range.`,
            ),
          response.partitions.length === 0
            ? h(EmptyState, {
                title: "No leases in this time range",
                text: searched
                  ? `No partition with “${searched}” in its key had an owner.`
                  : "Choose a longer or an earlier time range.",
                kind: "empty",
              })
            : isList
              ? h(ListView, { response, search })
              : h(
                  Fragment,
                  null,
                  h(Legend, {
                    entries: [
                      {
                        label: "each colour is a worker",
                        sign: h(
                          C.Flex,
                          { as: "span", gap: "2px" },
                          ...["blue", "teal", "pink"].map((palette) =>
                            h(C.Box, {
                              as: "span",
                              key: palette,
                              w: "10px",
                              h: "10px",
                              borderRadius: "2px",
                              bg: `${palette}.muted`,
                              borderWidth: 1,
                              borderColor: `${palette}.solid`,
                            }),
                          ),
                        ),
                      },
                      { label: `${ENDS.expired.label} or ${ENDS["taken over"].label}`, palette: ENDS.expired.palette },
                      { label: `${ENDS.failed.label} or ${ENDS.parked.label}`, palette: ENDS.failed.palette },
                      ENDS.completed,
                      ENDS.released,
                    ],
                  }),
                  h(
                    C.Box,
                    { flex: 1, minH: 0, display: "flex", flexDirection: "column" },
                    h(Chart, { response, onOpen }),
                  ),
                ),
        ),
    }),
  );
}
