// @vitest-environment happy-dom

/** Responses that are kept fresh. */

import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { queries, useLive, usePause } from "./live";

const sent: string[] = [];
let answer: (path: string) => { status: number; body: unknown };

function answered(url: URL) {
  const path = url.href.split("/coordination/")[1];
  sent.push(path);
  if (!path.startsWith("together")) return answer(path);
  return { status: 200, body: url.searchParams.getAll("path").map((each) => answer(each)) };
}

vi.useFakeTimers(); // once: what was planned before a change of the timers would never happen

beforeEach(() => {
  sent.length = 0;
  answer = (path) => ({ status: 200, body: { path } });
  vi.stubGlobal("fetch", (address: string) => {
    const { status, body } = answered(new URL(address));
    return Promise.resolve(new Response(JSON.stringify(body), { status }));
  });
  vi.spyOn(document, "visibilityState", "get").mockReturnValue("visible");
});

afterEach(async () => {
  cleanup();
  await vi.advanceTimersByTimeAsync(1000);
  queries.clear();
  vi.restoreAllMocks();
});

const pass = (seconds: number) => act(() => vi.advanceTimersByTimeAsync(seconds * 1000));

test("a response is requested at once, and again on each beat", async () => {
  const { result } = renderHook(() => useLive<{ path: string }>("a"));
  expect(result.current.response).toBe(null);
  await pass(0.1);
  expect(result.current.response).toEqual({ path: "a" });
  await pass(20);
  expect(sent.length).toBeGreaterThanOrEqual(10);
  expect(sent.length).toBeLessThanOrEqual(12);
});

test("what a page shows is refreshed by one request", async () => {
  renderHook(() => [useLive("a"), useLive("b?x=1&y=2")]);
  await pass(0.1);
  expect(sent).toEqual(["a", "b?x=1&y=2"]);
  await pass(6);
  expect(new Set(sent.slice(2))).toEqual(
    new Set([
      `together?${new URLSearchParams([
        ["path", "a"],
        ["path", "b?x=1&y=2"],
      ])}`,
    ]),
  );
});

test("one of several that fails keeps its response, and the others theirs", async () => {
  const { result } = renderHook(() => ({ a: useLive("a"), b: useLive("b") }));
  await pass(0.1);
  answer = (path) => (path === "b" ? { status: 503, body: { detail: "the store is away" } } : { status: 200, body: 1 });
  await pass(3);
  expect(result.current.a).toMatchObject({ response: 1, problem: null });
  expect(result.current.b).toMatchObject({ response: { path: "b" }, problem: { kind: "unavailable" } });
  answer = () => ({ status: 200, body: 2 });
  await pass(8);
  expect(result.current.b).toMatchObject({ response: 2, problem: null });
});

test("a session that ended is not asked again", async () => {
  answer = () => ({ status: 401, body: { detail: "no" } });
  const { result } = renderHook(() => useLive("a"));
  await pass(60);
  expect(sent).toEqual(["a"]);
  expect(result.current).toMatchObject({ problem: { kind: "session" }, nextAt: null });
});

test("a hidden page and a paused one ask for nothing", async () => {
  const { result } = renderHook(() => ({ live: useLive("a"), pause: usePause() }));
  await pass(0.1);
  vi.spyOn(document, "visibilityState", "get").mockReturnValue("hidden");
  globalThis.dispatchEvent(new Event("visibilitychange"));
  await pass(60);
  expect(sent).toEqual(["a"]);
  vi.spyOn(document, "visibilityState", "get").mockReturnValue("visible");
  globalThis.dispatchEvent(new Event("visibilitychange"));
  await pass(0.1);
  expect(sent.length).toBe(2);
  act(() => result.current.pause[1]());
  await pass(60);
  expect(sent.length).toBe(2);
  act(() => result.current.pause[1]());
  await pass(0.1);
  expect(sent.length).toBe(3);
});

test("a refresh during a request asks once more afterwards", async () => {
  const { result } = renderHook(() => useLive("a"));
  act(() => result.current.refresh());
  await pass(0.5);
  expect(sent).toEqual(["a", "a"]);
});
