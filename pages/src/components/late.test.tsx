// @vitest-environment happy-dom

/** Components whose code comes late. */

import { cleanup, render, screen } from "@testing-library/react";
import { Component, type ReactNode } from "react";
import { afterEach, expect, test, vi } from "vitest";

import { late } from "./late";

const Greeting = ({ name }: { name: string }) => <p>{`Hello ${name}`}</p>;

class Shown extends Component<{ children: ReactNode }> {
  state = { error: "" };

  static getDerivedStateFromError(error: Error) {
    return { error: error.message };
  }

  render() {
    return this.state.error || this.props.children;
  }
}

afterEach(cleanup);

test("shows the placeholder until the code is there", async () => {
  const Late = late(() => Promise.resolve(Greeting), "Loading");
  render(<Late name="Ada" />);
  expect(screen.getByText("Loading")).toBeTruthy();
  expect(await screen.findByText("Hello Ada")).toBeTruthy();
});

test("draws at once what was loaded before, and loads it once", async () => {
  const load = vi.fn(() => Promise.resolve(Greeting));
  const Late = late(load, "Loading");
  Late.preload();
  await Promise.resolve();
  await Promise.resolve();
  render(<Late name="Ada" />);
  expect(screen.queryByText("Loading")).toBeNull();
  expect(screen.getByText("Hello Ada")).toBeTruthy();
  expect(load).toHaveBeenCalledOnce();
});

test("says what to do if the code is gone, and loads it again when it is drawn again", async () => {
  vi.spyOn(console, "error").mockReturnValue(undefined);
  const load = vi.fn<() => Promise<typeof Greeting>>().mockRejectedValueOnce(new TypeError("Failed to fetch"));
  load.mockResolvedValue(Greeting);
  const Late = late(load);
  render(
    <Shown>
      <Late name="Ada" />
    </Shown>,
  );
  expect(await screen.findByText(/the server was upgraded since you opened them/)).toBeTruthy();
  cleanup();
  render(<Late name="Ada" />);
  expect(await screen.findByText("Hello Ada")).toBeTruthy();
});
