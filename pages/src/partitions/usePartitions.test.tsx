// @vitest-environment happy-dom

/** The list of partitions: which requests it sends, and what it shows until they are answered. */

import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { queries } from "../api/live";
import { usePartitions } from "./usePartitions";

const PLACE = { connection: "c", source: "s", page: "partitions" };
const keys = (from: number, count: number) => Array.from({ length: count }, (_, at) => `k${from + at}`);

let sent: URLSearchParams[] = [];
let answer: (query: URLSearchParams) => Promise<{ partitions: string[]; next: string | null }>;

vi.useFakeTimers();

beforeEach(() => {
  sent = [];
  vi.stubGlobal("fetch", async (address: string) => {
    const url = new URL(address);
    const read = async (path: string) => {
      const query = new URLSearchParams(path.split("?")[1]);
      sent.push(query);
      const { partitions, next } = await answer(query);
      return { partitions: partitions.map((key) => ({ partition_key: key })), next };
    };
    const paths = url.searchParams.getAll("path");
    const body =
      paths.length === 0
        ? await read(url.href)
        : await Promise.all(paths.map(async (path) => ({ status: 200, body: await read(path) })));
    return new Response(JSON.stringify(body));
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
const show = (filters = "") => renderHook((each: string) => usePartitions(PLACE, each), { initialProps: filters });

/** The answer of a source with pages of 150 and 500 rows. */
function longList(query: URLSearchParams) {
  const after = query.get("after");
  const partitions = after === null ? keys(0, 150) : keys(Number(after), 500);
  return Promise.resolve({ partitions, next: String(partitions.length + Number(after ?? 0)) });
}

test("a page is shown before the next one is there", async () => {
  answer = (query) => (query.has("after") ? new Promise(() => undefined) : longList(query));
  const { result } = show();
  act(() => result.current.onSight(0, 140));
  await pass(0.5);
  expect(sent.map((query) => query.get("after"))).toEqual([null, "150"]);
  expect(result.current).toMatchObject({ isLoaded: true, hasMore: true });
  expect(result.current.rows.length).toBe(150);
});

test("only the pages in sight are refreshed", async () => {
  answer = longList;
  const { result } = show();
  act(() => result.current.onSight(0, 140));
  await pass(1);
  act(() => result.current.onSight(200, 240));
  await pass(0.5); // what had begun before
  sent = [];
  await pass(5);
  expect(new Set(sent.map((query) => query.get("after")))).toEqual(new Set(["150"]));
  expect(result.current.rows.length).toBe(650);
});

test("rows stay until those of other filters are there", async () => {
  answer = longList;
  const { result, rerender } = show("order=key");
  await pass(0.1);
  let respond: (page: { partitions: string[]; next: null }) => void = () => undefined;
  answer = () => new Promise((resolve) => (respond = resolve));
  rerender("order=lag");
  expect(result.current).toMatchObject({ isLoaded: false, isShown: true, problem: null });
  expect(result.current.rows.length).toBe(150);
  await pass(0.1);
  respond({ partitions: ["a"], next: null });
  await pass(0.1);
  expect(result.current).toMatchObject({ isLoaded: true, hasMore: false });
  expect(result.current.rows.map((row) => row.partition_key)).toEqual(["a"]);
});

test("a list that was left is shown at once when the user returns", async () => {
  answer = longList;
  const { unmount } = show();
  await pass(0.1);
  unmount();
  answer = () => new Promise(() => undefined);
  const { result } = show();
  expect(result.current.isLoaded).toBe(true);
  expect(result.current.rows.length).toBe(150);
});

test("what is held back is shown once the pointer has left", async () => {
  answer = () => Promise.resolve({ partitions: ["b"], next: null });
  const { result } = show();
  await pass(0.1);
  act(() => result.current.onStill(true));
  answer = () => Promise.resolve({ partitions: ["a", "b"], next: null });
  await pass(3);
  expect(result.current.heldBack).toBe(1);
  expect(result.current.rows.length).toBe(1);
  act(() => result.current.onStill(false));
  await pass(0.1);
  expect(result.current.heldBack).toBe(0);
  expect(result.current.rows.map((row) => row.partition_key)).toEqual(["a", "b"]);
});
