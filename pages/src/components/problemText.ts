/** What a page shows without content: that it loads, that there is nothing, or what is wrong and what to do. */

import { capitalized } from "../format/text";
import type { ProblemLike } from "../types";

/** Return the description of a problem: a title, what it means, and whether the page retries automatically. */
export function descriptionOf(problem: ProblemLike, connection: string | undefined) {
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

function sentence(text: string) {
  const whole = capitalized(text);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}
