/** What a page shows where it has nothing to show: it loads, there is nothing, or something is wrong and what to do. */

import { logIn } from "./api.js";
import { C, h } from "./host.js";
import { Icon } from "./icons.js";
import { capitalized } from "./text.js";
import { useNow } from "./clock.js";
import { duration } from "./time.js";

/**
 * Return what to say about a problem: a title, what it means, and whether it is tried again by itself.
 *
 * @param {ProblemLike} problem
 * @param {string|undefined} connection
 */
function wordsOf(problem, connection) {
  const named = connection ? `the connection “${connection}”` : "this connection";
  switch (problem.kind) {
    case "session":
      return { title: "Your session has ended", text: "Log in again to go on where you are.", icon: "lock" };
    case "forbidden":
      return {
        title: "You may not see this",
        text: `Leases are shown to those who may read ${named}. Ask whoever manages Airflow for the right “can read” on Connections.`,
        icon: "lock",
      };
    case "missing":
      return { title: "This is not here", text: sentence(problem.message), icon: "search" };
    case "refused":
      return { title: "This cannot be shown", text: sentence(problem.message), icon: "alert" };
    case "away":
      return {
        title: "The store does not answer",
        text: "Airflow and running jobs go on: jobs wait for the store for five minutes. This page goes on trying.",
        icon: "plug",
        isRetried: true,
      };
    case "offline":
      return {
        title: "Airflow’s API server does not answer",
        text: "The network or the server is away. This page goes on trying.",
        icon: "plug",
        isRetried: true,
      };
    default:
      return {
        title: "Something failed",
        text: `${sentence(problem.message)} This page goes on trying.`,
        icon: "alert",
        isRetried: true,
      };
  }
}

/** @param {string} text */
function sentence(text) {
  const whole = capitalized(text);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

/** @param {{nextAt: number|null}} props */
function Again({ nextAt }) {
  useNow(); // it counts down
  const left = nextAt === null ? 0 : (nextAt - Date.now()) / 1000;
  return left > 0.5 ? `Trying again in ${duration(Math.ceil(left))}.` : "Trying now.";
}

/**
 * A page, or a part of one, that is not there because of a problem.
 *
 * @param {{problem: ProblemLike, connection?: string, nextAt?: number|null, refresh?: (() => void)}} props
 */
export function Failed({ problem, connection, nextAt = null, refresh }) {
  const words = wordsOf(problem, connection);
  return h(
    Nothing,
    { title: words.title, text: words.text, icon: words.icon, role: "alert", kind: problem.kind },
    words.isRetried && h(C.Text, { fontSize: "sm", color: "fg.muted", "aria-live": "off" }, h(Again, { nextAt })),
    problem.kind === "session"
      ? h(C.Button, { size: "sm", onClick: logIn, colorPalette: "brand" }, "Log in again")
      : refresh && h(C.Button, { size: "sm", variant: "outline", onClick: refresh }, "Try now"),
  );
}

/**
 * One of several parts of a page that is not there because of a problem: as large as that deserves.
 *
 * @param {{title: string, text?: Content, icon: string, kind: string, children?: Content}} props
 */
export function FailedPart({ title, text, icon, kind, children }) {
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
    children,
  );
}

/**
 * A line below what was known before a problem came: in sight wherever one scrolls, it moves nothing of that.
 *
 * @param {{problem: ProblemLike, connection?: string, nextAt?: number|null, refresh?: (() => void)}} props
 */
export function Stale({ problem, connection, nextAt = null, refresh }) {
  const words = wordsOf(problem, connection);
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
      h(C.Alert.Description, { as: "span" }, "What you see is how it was. ", words.isRetried && h(Again, { nextAt })),
    ),
    problem.kind === "session"
      ? h(C.Button, { size: "xs", variant: "outline", onClick: logIn }, "Log in again")
      : refresh && h(C.Button, { size: "xs", variant: "outline", onClick: refresh }, "Try now"),
  );
}

/**
 * Nothing to show, and why.
 *
 * @param {{title: string, text?: Content, icon?: string, kind?: string, role?: string, children?: Content}} props
 */
export function Nothing({ title, text, icon = "search", kind, role, children }) {
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
 * What stands in for something that loads.
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
 * Show what a live answer holds, or what stands in for it.
 *
 * @param {{
 *   live: Refreshed<any>, what: string, connection?: string, rows?: number, isPart?: boolean,
 *   children: (answer: any) => Content,
 * }} props
 *     `isPart` where the page shows more than this
 */
export function Shown({ live, what, connection, rows, isPart = false, children }) {
  const { answer, problem, nextAt, refresh } = live;
  if (answer !== null && problem?.kind !== "forbidden") {
    return [children(answer), problem && h(Stale, { key: "stale", problem, connection, nextAt, refresh })];
  }
  if (problem !== null && isPart) {
    const words = wordsOf(problem, connection);
    const text = [words.text, " ", words.isRetried && h(Again, { key: "again", nextAt })];
    return h(
      FailedPart,
      { ...words, text, kind: problem.kind },
      problem.kind === "session"
        ? h(C.Button, { size: "xs", onClick: logIn, colorPalette: "brand" }, "Log in again")
        : h(C.Button, { size: "xs", variant: "outline", onClick: refresh }, "Try now"),
    );
  }
  if (problem !== null) return h(Failed, { problem, connection, nextAt, refresh });
  return h(Loading, { what, rows });
}
