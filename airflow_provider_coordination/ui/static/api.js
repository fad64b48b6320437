/** The API below `/coordination`: questions that end in time, and problems by what a person can do about them. */

import { loginPath } from "./urls.js";
import { ServerClock } from "./time.js";

const PATIENCE_SECONDS = 15;
/** An order is for hundreds of partitions, each a write of its own. */
const PATIENCE_FOR_ORDERS_SECONDS = 60;

/** The server's clock, as its answers tell it: one for all pages, as there is one server. */
export const clock = new ServerClock();

/**
 * An answer that is none.
 *
 * `kind` is `session` (log in again), `forbidden`, `missing`, `stale` (it has changed since), `refused` (bad input),
 * `away` (the store does not answer), `offline` (the API server does not), or `broken` (the server failed).
 */
export class Problem extends Error {
  /**
   * @param {string} kind
   * @param {string} detail
   * @param {number|null} [status]
   */
  constructor(kind, detail, status = null) {
    super(detail);
    this.kind = kind;
    this.status = status;
  }
}

/** @type {Record<number, string>} */
const KINDS = { 401: "session", 403: "forbidden", 404: "missing", 409: "stale", 503: "away" };

/**
 * Return what kind of problem an answer of the server is.
 *
 * @param {number} status
 * @param {string} detail
 */
function kindOf(status, detail) {
  if (status === 403 && /JWT token/i.test(detail)) return "session"; // Airflow's word for one that has run out
  if (KINDS[status] !== undefined) return KINDS[status];
  return status >= 400 && status < 500 ? "refused" : "broken";
}

/**
 * Return the address of something below Airflow's own, wherever it is deployed.
 *
 * @param {string} path
 */
export function addressOf(path) {
  return new URL(path, document.baseURI).href;
}

/** Go where one logs in, and come back to this page from there. */
export function logIn() {
  globalThis.location.assign(addressOf(loginPath(globalThis.location)));
}

/**
 * Ask the API.
 *
 * @param {string} path below `/coordination/`
 * @param {{body?: Object, signal?: AbortSignal}} [options] a body makes it a POST
 * @returns {Promise<any>} the answer
 * @throws {Problem} where there is none; the signal's own error where it was called off
 */
export async function ask(path, { body, signal } = {}) {
  signal?.throwIfAborted();
  const patience = body === undefined ? PATIENCE_SECONDS : PATIENCE_FOR_ORDERS_SECONDS;
  const controller = new AbortController();
  const callOff = () => controller.abort();
  signal?.addEventListener("abort", callOff);
  const timer = setTimeout(callOff, patience * 1000);
  try {
    const answer = await fetch(addressOf(`coordination/${path}`), {
      method: body === undefined ? "GET" : "POST",
      headers: { Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: controller.signal,
    });
    return await read(answer);
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof Problem) throw error;
    if (error instanceof Error && error.name === "AbortError")
      throw new Problem("offline", `no answer within ${patience} s`);
    throw new Problem("offline", "the API server cannot be reached");
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", callOff);
  }
}

/** @param {Response} answer */
async function read(answer) {
  const text = await answer.text();
  let content;
  try {
    content = JSON.parse(text);
  } catch {
    if (answer.ok) throw new Problem("broken", "the answer is no JSON", answer.status);
    throw new Problem(kindOf(answer.status, text), `the API server answered ${answer.status}; its log says more`, answer.status);
  }
  if (!answer.ok) {
    const detail = typeof content?.detail === "string" ? content.detail : JSON.stringify(content?.detail ?? content);
    throw new Problem(kindOf(answer.status, detail), detail, answer.status);
  }
  if (typeof content?.as_of === "string") clock.heard(content.as_of);
  return content;
}
