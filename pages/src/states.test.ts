/** What states are called, what a source's bar is made of, and which actions a state allows. */

import { expect, test } from "vitest";

import { bySeverity, byUrgency, connectionRank, fillOf, segmentsOf, stateOf, STATES } from "./states";

const CARD = {
  source: "clicks",
  counts: { UNASSIGNED: 5, ASSIGNED: 4, CLOSED: 3, COMPLETED: 0 },
  parked: 1,
  expired_leases: 2,
  alarms: [],
  lag: null,
};

test("a state that this page does not know is shown by its name", () => {
  expect(stateOf("brand new").label).toBe("brand new");
  expect(stateOf("constructor").label).toBe("constructor");
});

test("a status bar counts each partition once", () => {
  const segments = segmentsOf(CARD);
  expect(segments.map(({ state, count }) => [state, count])).toEqual([
    ["parked", 1],
    ["expired", 2],
    ["resting", 2],
    ["held", 2],
    ["waiting", 5],
  ]);
  expect(segments.reduce((sum, each) => sum + each.count, 0)).toBe(12);
});

test("sources with an alarm come first, then those that are behind", () => {
  const cards = [
    { ...CARD, source: "calm" },
    { ...CARD, source: "late", lag: 600 },
    { ...CARD, source: "warned", alarms: [{ level: "warning", text: "" }] },
    {
      ...CARD,
      source: "alarmed",
      alarms: [
        { level: "warning", text: "" },
        { level: "error", text: "" },
      ],
    },
  ];
  expect(byUrgency(cards).map((card) => card.source)).toEqual(["alarmed", "warned", "late", "calm"]);
  expect(cards[0].source).toBe("calm");
});

test("a connection that cannot be used comes before one with an alarm, and that before a calm one", () => {
  const alarmed = { ...CARD, alarms: [{ level: "error", about: "parked", text: "" }] };
  const ranks = [
    connectionRank({ problem: "no such store" }, []),
    connectionRank({ problem: null }, [CARD, alarmed]),
    connectionRank({ problem: null }, [CARD]),
  ];
  expect(ranks).toEqual([...ranks].sort());
  expect(new Set(ranks).size).toBe(3);
  expect(connectionRank({ problem: null }, [])).toBe(ranks[2]);
});

test("what needs a person comes first, and the rest stays in its order", () => {
  const states = ["held", "completed", "brand new", "parked", "held 2", "expired"];
  expect(bySeverity(states, (state) => state.replace(" 2", ""))).toEqual([
    "parked",
    "expired",
    "held",
    "held 2",
    "completed",
    "brand new",
  ]);
});

test("every state has a name, a colour and a meaning", () => {
  for (const [name, state] of Object.entries(STATES)) {
    expect(state.label && state.meaning, name).toBeTruthy();
    expect(fillOf(state.palette)).toMatch(/^var\(--chakra-colors-[a-z]+-(solid|500)\)$/);
  }
});
