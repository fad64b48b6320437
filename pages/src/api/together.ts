/** Requests of the same moment are sent as one: all that a page shows is refreshed on the same beat. */

import { answerOf, Problem, request } from "./request";

const MOMENT_MILLISECONDS = 40;
const MOST = 8;

type Waiting = {
  path: string;
  signal?: AbortSignal;
  resolve: (response: unknown) => void;
  reject: (error: unknown) => void;
};
type Answer = { status: number; body: unknown };

let waiting: Waiting[] = [];

/**
 * Read a path, together with others that are read in this moment.
 *
 * @param path below `/coordination/`
 * @throws {Problem} if the request fails; the signal's own error if it was cancelled
 */
export function requestTogether<Body>(path: string, { signal }: { signal?: AbortSignal } = {}): Promise<Body> {
  return new Promise((resolve, reject) => {
    waiting.push({ path, signal, resolve: resolve as Waiting["resolve"], reject });
    if (waiting.length === 1) setTimeout(sendAll, MOMENT_MILLISECONDS);
  });
}

function sendAll() {
  const all = waiting.filter(({ signal, reject }) => {
    if (signal?.aborted) reject(signal.reason);
    return !signal?.aborted;
  });
  waiting = [];
  for (let first = 0; first < all.length; first += MOST) void send(all.slice(first, first + MOST));
}

async function send(some: Waiting[]) {
  if (some.length === 1) {
    const [{ path, signal, resolve, reject }] = some;
    request(path, { signal }).then(resolve, reject);
    return;
  }
  const paths = [...new Set(some.map(({ path }) => path))];
  // It is cancelled once nobody waits for it any more.
  const controller = new AbortController();
  const cancel = () => {
    if (some.every(({ signal }) => signal?.aborted)) controller.abort();
  };
  some.forEach(({ signal }) => signal?.addEventListener("abort", cancel));
  try {
    const query = new URLSearchParams(paths.map((path) => ["path", path]));
    const answers: Answer[] = await request(`together?${query}`, { signal: controller.signal });
    for (const { path, signal, resolve, reject } of some) {
      const { status, body } = answers[paths.indexOf(path)];
      if (signal?.aborted) reject(signal.reason);
      else
        try {
          resolve(answerOf(status, body));
        } catch (error) {
          reject(error);
        }
    }
  } catch (error) {
    const problem = error instanceof Problem ? error : new Problem("offline", "the request was cancelled");
    some.forEach(({ signal, reject }) => reject(signal?.aborted ? signal.reason : problem));
  } finally {
    some.forEach(({ signal }) => signal?.removeEventListener("abort", cancel));
  }
}
