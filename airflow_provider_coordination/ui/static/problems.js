/** What a page shows without content: that it loads, that there is nothing, or what is wrong and what to do. */

import { logIn } from "./api.js";
import { C, h } from "./host.js";
import { Icon } from "./icons.js";
import { capitalized } from "./text.js";
import { useNow } from "./clock.js";
import { duration } from "./time.js";
import { ManualLink } from "./widgets.js";

/**
 * Return the description of a problem: a title, what it means, and whether the page retries automatically.
 *
 * @param {ProblemLike} problem
 * @param {string|undefined} connection
 */
function descriptionOf(problem, connection) {
  const named = connection ? `the connection “${connection}”` : "this connection";
  switch (problem.kind) {
    case "session":
      return { title: "Your session has ended", text: "Log in again to return to this page.", icon: "lock" };
    case "forbidden":
      return {
        title: "No permission to view this",
        text: `You need permission to read ${named}. Ask an Airflow administrator for “can read” on Connections.`,
        icon: "lock",
        topic: "access",
      };
    case "missing":
      return { title: "Not found", text: sentence(problem.message), icon: "search" };
    case "refused":
      return { title: "Invalid request", text: sentence(problem.message), icon: "alert", topic: "failed-request" };
    case "unavailable":
      return {
        title: "The store is unavailable",
        text: "Restore it. Airflow is not affected, and running jobs wait for the store for 5 min. This page retries automatically.",
        icon: "plug",
        isRetried: true,
        topic: "store",
      };
    case "offline":
      return {
        title: "Airflow’s API server is unavailable",
        text: "Check your network and the API server. This page retries automatically.",
        icon: "plug",
        isRetried: true,
      };
    default:
      return {
        title: "The request failed",
        text: `${sentence(problem.message)} This page retries automatically.`,
        icon: "alert",
        isRetried: true,
        topic: "failed-request",
      };
  }
}

/** @param {string} text */
function sentence(text) {
  const whole = capitalized(text);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

/** @param {{nextAt: number|null}} props */
function RetryCountdown({ nextAt }) {
  useNow(); // it counts down
  const left = nextAt === null ? 0 : (nextAt - Date.now()) / 1000;
  return left > 0.5 ? `Retrying in ${duration(Math.ceil(left))}.` : "Retrying now.";
}

/**
 * A page, or a part of one, that cannot be shown because of a problem.
 *
 * @param {{problem: ProblemLike, connection?: string, nextAt?: number|null, refresh?: (() => void)}} props
 */
export function ProblemPage({ problem, connection, nextAt = null, refresh }) {
  const words = descriptionOf(problem, connection);
  return h(
    EmptyState,
    { title: words.title, text: words.text, icon: words.icon, role: "alert", kind: problem.kind },
    words.isRetried && h(C.Text, { fontSize: "sm", color: "fg.muted", "aria-live": "off" }, h(RetryCountdown, { nextAt })),
    words.topic && h(ManualLink, { topic: words.topic }),
    problem.kind === "session"
      ? h(C.Button, { size: "sm", onClick: logIn, colorPalette: "brand" }, "Log in again")
      : refresh && h(C.Button, { size: "sm", variant: "outline", onClick: refresh }, "Retry now"),
  );
}

/**
 * One of several parts of a page that cannot be shown because of a problem.
 *
 * @param {{title: string, text?: Content, icon: string, kind: string, topic?: string, children?: Content}} props `topic`
 *     is where the manual says more
 */
export function ProblemPart({ title, text, icon, kind, topic, children }) {
  return h(
    C.Flex,
    {
      gap: 3,
      align: "flex-start",
      wrap: "wrap",
      p: 4,
      borderWidth: 1,
      borderColor: "border.emphasized",
      borderStartWidth: 4,
      borderStartColor: "orange.solid",
      borderRadius: "md",
      maxW: "760px",
      role: "alert",
      "data-problem": kind,
    },
    h(C.Box, { color: "orange.fg", pt: "2px" }, h(Icon, { name: icon, size: 5 })),
    h(
      C.Box,
      { minW: 0, flex: "1 1 200px" },
      h(C.Text, { fontWeight: "semibold" }, title),
      h(C.Text, { fontSize: "sm", color: "fg.muted", overflowWrap: "anywhere" }, text),
    ),
    topic && h(ManualLink, { topic }),
    children,
  );
}

/**
 * A line below the content from before a problem. It is always visible, and moves nothing of the content.
 *
 * @param {{problem: ProblemLike, connection?: string, nextAt?: number|null, refresh?: (() => void)}} props
 */
export function StaleNote({ problem, connection, nextAt = null, refresh }) {
  const words = descriptionOf(problem, connection);
  return h(
    C.Alert.Root,
    {
      status: words.isRetried ? "warning" : "error",
      size: "sm",
      role: "alert",
      mt: 3,
      position: "sticky",
      bottom: 0,
      zIndex: 3,
      flexShrink: 0,
      "data-problem": problem.kind,
      flexWrap: "wrap",
    },
    h(C.Alert.Indicator, null, h(Icon, { name: words.icon })),
    h(
      C.Alert.Content,
      { minW: 0, flex: 1, display: "block", color: "fg" },
      h(C.Alert.Title, { as: "span", fontWeight: "semibold" }, `${words.title}. `),
      h(C.Alert.Description, { as: "span" }, "The page shows the last known state. ", words.isRetried && h(RetryCountdown, { nextAt })),
    ),
    words.topic && h(ManualLink, { topic: words.topic }),
    problem.kind === "session"
      ? h(C.Button, { size: "xs", variant: "outline", onClick: logIn }, "Log in again")
      : refresh && h(C.Button, { size: "xs", variant: "outline", onClick: refresh }, "Retry now"),
  );
}

/**
 * The reason why there is nothing to show.
 *
 * @param {{title: string, text?: Content, icon?: string, kind?: string, role?: string, children?: Content}} props
 */
export function EmptyState({ title, text, icon = "search", kind, role, children }) {
  return h(
    C.EmptyState.Root,
    { role, "data-problem": kind, py: 10 },
    h(
      C.EmptyState.Content,
      { maxW: "lg", mx: "auto" },
      h(C.EmptyState.Indicator, { color: "fg.muted" }, h(Icon, { name: icon, size: 8 })),
      h(C.EmptyState.Title, { as: "h2", textAlign: "center" }, title),
      text && h(C.EmptyState.Description, { textAlign: "center", color: "fg.muted", overflowWrap: "anywhere" }, text),
      children,
    ),
  );
}

/**
 * The placeholder of something that loads.
 *
 * @param {{what: string, rows?: number, height?: number}} props
 */
export function Loading({ what, rows = 6, height = 9 }) {
  return h(
    C.Stack,
    { gap: 2, "aria-busy": true },
    h(C.VisuallyHidden, { role: "status" }, `Loading ${what}`),
    ...Array.from({ length: rows }, (_, index) =>
      h(C.Skeleton, { key: index, height, opacity: 1 - index / (rows + 1) }),
    ),
  );
}

/**
 * Show the content of a live response, or a placeholder for it.
 *
 * @param {{
 *   live: Refreshed<any>, what: string, connection?: string, rows?: number, isPart?: boolean,
 *   children: (response: any) => Content,
 * }} props
 *     `isPart` if the page shows more than this
 */
export function LiveContent({ live, what, connection, rows, isPart = false, children }) {
  const { response, problem, nextAt, refresh } = live;
  if (response !== null && problem?.kind !== "forbidden") {
    return [children(response), problem && h(StaleNote, { key: "stale", problem, connection, nextAt, refresh })];
  }
  if (problem !== null && isPart) {
    const words = descriptionOf(problem, connection);
    const text = [words.text, " ", words.isRetried && h(RetryCountdown, { key: "again", nextAt })];
    return h(
      ProblemPart,
      { ...words, text, kind: problem.kind },
      problem.kind === "session"
        ? h(C.Button, { size: "xs", onClick: logIn, colorPalette: "brand" }, "Log in again")
        : h(C.Button, { size: "xs", variant: "outline", onClick: refresh }, "Retry now"),
    );
  }
  if (problem !== null) return h(ProblemPage, { problem, connection, nextAt, refresh });
  return h(Loading, { what, rows });
}
