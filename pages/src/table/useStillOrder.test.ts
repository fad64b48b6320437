/** Things that somebody points at keep their places. */

import { expect, test } from "vitest";

import { inPlaces } from "./useStillOrder";

test("things keep the order in which they were shown, and new ones come last", () => {
  expect(inPlaces(["new", "a", "b"], (name) => name, ["b", "gone", "a"])).toEqual(["b", "a", "new"]);
});
