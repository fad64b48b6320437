/** The API below `/coordination`: requests with a timeout, and problems by what a user can do about them. */

import { ServerClock } from "../format/time";
import { loginPath } from "../urls";

const TIMEOUT_SECONDS = 15;
/** An action may affect hundreds of partitions, each with its own write. */
const ACTION_TIMEOUT_SECONDS = 60;

/** The server's clock, from the times in its responses. All pages share it, as there is one server. */
export const clock = new ServerClock();

/**
 * A request that failed.
 *
 * `kind` is `session` (log in again), `forbidden`, `missing`, `stale` (the item has changed since), `refused` (invalid
 * input), `unavailable` (the store is), `offline` (the API server does not respond), or `broken` (the server failed).
 */
export class Problem extends Error {
  constructor(
    readonly kind: string,
    detail: string,
    readonly status: number | null = null,
  ) {
    super(detail);
  }
}

const KINDS: Record<number, string> = {
  401: "session",
  403: "forbidden",
  404: "missing",
  409: "stale",
  503: "unavailable",
};

/** Return the kind of problem of an error response. */
function kindOf(status: number, detail: string) {
  if (status === 403 && /JWT token/i.test(detail)) return "session"; // Airflow's message for an expired token
  if (KINDS[status] !== undefined) return KINDS[status];
  return status >= 400 && status < 500 ? "refused" : "broken";
}

/** Return the URL of a path below Airflow's own URL, wherever Airflow is deployed. */
export function addressOf(path: string) {
  return new URL(path, document.baseURI).href;
}

/** Open the login page, which leads back to this page. */
export function logIn() {
  globalThis.location.assign(addressOf(loginPath(globalThis.location)));
}

/**
 * Send a request to the API.
 *
 * @param path below `/coordination/`
 * @param [options] a body makes it a POST
 * @returns the response
 * @throws {Problem} if the request fails; the signal's own error if it was cancelled
 */
export async function request<Body>(
  path: string,
  { body, signal }: { body?: object; signal?: AbortSignal } = {},
): Promise<Body> {
  signal?.throwIfAborted();
  const timeout = body === undefined ? TIMEOUT_SECONDS : ACTION_TIMEOUT_SECONDS;
  const controller = new AbortController();
  const cancel = () => controller.abort();
  signal?.addEventListener("abort", cancel);
  const timer = setTimeout(cancel, timeout * 1000);
  try {
    const response = await fetch(addressOf(`coordination/${path}`), {
      method: body === undefined ? "GET" : "POST",
      headers: { Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: controller.signal,
    });
    return (await read(response)) as Body;
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof Problem) throw error;
    if (error instanceof Error && error.name === "AbortError")
      throw new Problem("offline", `no response within ${timeout} s`);
    throw new Problem("offline", "the API server is not reachable");
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", cancel);
  }
}

async function read(response: Response) {
  const text = await response.text();
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    if (response.ok) throw new Problem("broken", "the response is not JSON", response.status);
    throw new Problem(
      kindOf(response.status, text),
      `the API server returned status ${response.status}; see its log`,
      response.status,
    );
  }
  return answerOf(response.status, content);
}

/**
 * Return the content of a response, and set the clock by it.
 *
 * @throws {Problem} if its status is an error
 */
export function answerOf(status: number, content: unknown) {
  const fields = (content ?? {}) as { detail?: unknown; as_of?: unknown };
  if (status >= 400) {
    const detail = typeof fields.detail === "string" ? fields.detail : JSON.stringify(fields.detail ?? content);
    throw new Problem(kindOf(status, detail), detail, status);
  }
  if (typeof fields.as_of === "string") clock.update(fields.as_of);
  return content;
}
