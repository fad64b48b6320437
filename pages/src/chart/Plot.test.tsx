// @vitest-environment happy-dom

/** A chart is drawn on a canvas, which knows no CSS: it must be drawn again in the colours of another colour mode. */

import { act, cleanup, render } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { Theme } from "../theme";
import type { Line } from "../types";
import { Plot } from "./Plot";

const LINE: Line = {
  name: "Lag",
  palette: "blue",
  points: [0, 1, 2].map((minute) => ({ at: minute * 60_000, value: minute })),
};

let strokes: Set<unknown>;

/** A context that draws nothing, and notes the colours of lines and texts. */
function recorder(): CanvasRenderingContext2D {
  return new Proxy({} as CanvasRenderingContext2D, {
    get: (_, name) => (name === "measureText" ? () => ({ width: 10 }) : () => undefined),
    set: (_, name, value) => {
      if (name === "strokeStyle" || name === "fillStyle") strokes.add(value);
      return true;
    },
  });
}

const COLORS: Record<string, Record<string, string>> = {
  light: { "--chakra-colors-blue-solid": "navy", "--chakra-colors-border": "silver" },
  dark: { "--chakra-colors-blue-solid": "skyblue", "--chakra-colors-border": "dimgray" },
};

/** What Airflow's page does when the user chooses another colour mode. */
function setMode(mode: "light" | "dark") {
  document.documentElement.className = mode;
}

beforeEach(() => {
  strokes = new Set();
  vi.stubGlobal("Path2D", vi.fn(recorder));
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockImplementation(recorder as never);
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(600);
  // happy-dom computes no variables.
  vi.stubGlobal("getComputedStyle", () => ({
    fontFamily: "sans-serif",
    getPropertyValue: (name: string) => COLORS[document.documentElement.className][name] ?? "",
  }));
  setMode("light");
});

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

const settle = () => act(() => new Promise((resolve) => setTimeout(resolve, 20)));

test("another colour mode draws a chart again in its colours", async () => {
  render(
    <Theme>
      <Plot
        lines={[LINE]}
        gaps={[]}
        window={{ since: 0, until: 120_000 }}
        unit="seconds"
        format={String}
        zone="UTC"
        at={null}
        onPoint={() => undefined}
      />
    </Theme>,
  );
  await settle();
  expect(strokes).toContain("navy");
  expect(strokes).toContain("silver");
  strokes.clear();
  setMode("dark");
  await settle();
  expect(strokes).toContain("skyblue");
  expect(strokes).toContain("dimgray");
  expect(strokes).not.toContain("navy");
});
