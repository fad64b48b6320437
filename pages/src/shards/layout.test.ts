/** The family tree of shards as a picture. */

import { expect, test } from "vitest";

import { boxesBetween, compact, firstProblem, fractionOf, isUneven, layOut, neighbour, readableHeight } from "./layout";

const SPACE = 1n << 128n;
const shard = (id, from, to, more = {}) => ({
  shard_id: id,
  parents: [],
  children: [],
  is_ended: false,
  state: "held",
  starting_hash_key: String((SPACE * BigInt(from)) / 100n),
  ending_hash_key: String((SPACE * BigInt(to)) / 100n - 1n),
  ...more,
});
const tree = (shards, holes = []) => layOut({ shards, holes });
const boxOf = (layout, id) => layout.boxes.find((box) => box.shard.shard_id === id);
const close = (a, b) => expect(Math.abs(a - b) < 1e-9, `${a} is not ${b}`).toBe(true);

/** Two shards; one was split, and one of its children merged with the other. */
const FAMILY = [
  shard("a", 0, 50, { is_ended: true, children: ["c", "d"] }),
  shard("b", 50, 100, { is_ended: true, children: ["e"] }),
  shard("c", 0, 25, { parents: ["a"] }),
  shard("d", 25, 50, { parents: ["a"], is_ended: true, children: ["e"] }),
  shard("e", 25, 100, { parents: ["d", "b"] }),
];

test("hash keys are to scale, up to the last one", () => {
  expect(fractionOf("0")).toBe(0);
  expect(fractionOf(String(SPACE / 4n))).toBe(0.25);
  const { boxes } = tree([shard("a", 0, 100)]);
  expect([boxes[0].top, boxes[0].bottom]).toEqual([0, 1]);
});

test("what is no hash key does not break the picture", () => {
  expect(fractionOf("many")).toBe(0);
});

test("a shard comes one generation after the latest of its parents", () => {
  const layout = tree(FAMILY);
  expect(layout.generations).toBe(3);
  expect(["a", "b", "c", "d", "e"].map((id) => boxOf(layout, id).from)).toEqual([0, 0, 1, 1, 2]);
});

test("a shard reaches to its children, and an open one to the right edge, which is now", () => {
  const layout = tree(FAMILY);
  expect(["a", "b", "c", "d", "e"].map((id) => boxOf(layout, id).to)).toEqual([1, 2, 3, 2, 3]);
  expect(layout.boxes.filter((box) => box.open).map((box) => box.shard.shard_id)).toEqual(["c", "e"]);
});

test("the shards at the right edge cover the hash keys once, without a gap", () => {
  const layout = tree(FAMILY);
  const now = layout.boxes.filter((box) => box.to === layout.generations).sort((a, b) => a.top - b.top);
  let end = 0;
  for (const box of now) {
    close(box.top, end);
    end = box.bottom;
  }
  close(end, 1);
});

test("splits and merges are counted", () => {
  const layout = tree(FAMILY);
  expect([layout.splits, layout.merges]).toEqual([1, 1]);
});

test("a shard that ended and whose children nobody knows ends in its generation", () => {
  const layout = tree([
    shard("a", 0, 50, { is_ended: true }),
    shard("b", 50, 100),
    shard("c", 50, 100, { parents: ["b"] }),
  ]);
  expect(boxOf(layout, "a").to).toBe(1);
});

test("parents that were cleaned up leave their children as the first generation", () => {
  expect(boxOf(tree([shard("c", 0, 100, { parents: ["gone"] })]), "c").from).toBe(0);
});

test("relatives without a range share the range of those that have one", () => {
  const unknown = { starting_hash_key: null, ending_hash_key: null, state: "unleased" };
  const layout = tree([
    shard("p", 0, 0, { ...unknown, children: ["c"] }),
    shard("q", 0, 0, { ...unknown, children: ["c"] }),
    shard("c", 20, 60, { parents: ["p", "q"] }),
  ]);
  close(boxOf(layout, "p").top, 0.2);
  close(boxOf(layout, "p").bottom, 0.4);
  close(boxOf(layout, "q").top, 0.4);
  close(boxOf(layout, "q").bottom, 0.6);
});

test("a shard without a lease leaves the edge to the hole that it is, and one that somebody reads does not", () => {
  const hole = { starting_hash_key: "0", ending_hash_key: String(SPACE / 2n - 1n) };
  const family = [
    shard("p", 0, 100, { is_ended: true }),
    shard("c", 0, 50, { parents: ["p"], state: "unleased" }),
    shard("d", 50, 100, { parents: ["p"] }),
  ];
  const covered = tree(family, [hole]);
  expect(boxOf(covered, "c").to <= covered.holes[0].from).toBe(true);
  expect(covered.holes[0].from < covered.generations).toBe(true);
  expect(boxOf(covered, "d").to).toBe(covered.generations);
  expect(tree([family[0], family[2]], [hole]).holes[0].from).toBe(covered.generations - 1);
});

test("holes are where they are", () => {
  const { holes } = tree(
    [shard("a", 0, 50)],
    [{ starting_hash_key: String(SPACE / 2n), ending_hash_key: String(SPACE - 1n) }],
  );
  expect(holes.length).toBe(1);
  close(holes[0].top, 0.5);
  close(holes[0].bottom, 1);
});

test("shards that are each other's parents are drawn nevertheless", () => {
  expect(tree([shard("a", 0, 50, { parents: ["b"] }), shard("b", 50, 100, { parents: ["a"] })]).boxes.length).toBe(2);
});

test("a stream without shards is an empty picture", () => {
  expect(tree([])).toEqual({ generations: 0, boxes: [], holes: [], hasHashKeys: false, splits: 0, merges: 0 });
});

test("a thousand shards are each tall enough for a line of text", () => {
  const shards = Array.from({ length: 1000 }, (_, at) => ({
    ...shard(`s${at}`, 0, 1),
    starting_hash_key: String((SPACE * BigInt(at)) / 1000n),
    ending_hash_key: String((SPACE * BigInt(at + 1)) / 1000n - 1n),
  }));
  const { boxes } = tree(shards);
  const height = readableHeight(boxes, 600);
  expect((boxes[500].bottom - boxes[500].top) * height >= 18).toBe(true);
  expect(height < 60001).toBe(true);
});

test("few shards fill what can be seen", () => {
  expect(readableHeight(tree(FAMILY).boxes, 600)).toBe(600);
  expect(readableHeight([], 600)).toBe(600);
});

test("only what is in sight is drawn", () => {
  const { boxes } = tree(FAMILY);
  expect(boxesBetween(boxes, 0.8, 0.9).map((box) => box.shard.shard_id)).toEqual(["b", "e"]);
});

test("the arrow keys go to parents, to children, and through a generation", () => {
  const layout = tree(FAMILY);
  const go = (id, key) => neighbour(layout.boxes, boxOf(layout, id), key).shard.shard_id;
  expect(go("a", "ArrowRight")).toBe("c");
  expect(go("c", "ArrowLeft")).toBe("a");
  expect(go("c", "ArrowDown")).toBe("d");
  expect(go("d", "ArrowUp")).toBe("c");
  expect(go("d", "ArrowDown")).toBe("d");
  expect(go("e", "ArrowRight")).toBe("e");
  expect(go("c", "End")).toBe("e");
  expect(go("c", "Home")).toBe("a");
});

/** The next half of what is left, so that each shard is half as large as the one before. */
const halved = (at) => ({
  ...shard(`s${at}`, 0, 1),
  starting_hash_key: String(at === 39 ? 0n : SPACE >> BigInt(1 + at)),
  ending_hash_key: String((SPACE >> BigInt(at)) - 1n),
});

test("a stream with shards of very different sizes is distinguished from one with similar shards", () => {
  expect(isUneven(tree(FAMILY).boxes)).toBe(false);
  const shards = Array.from({ length: 40 }, (_, at) => halved(at));
  expect(isUneven(tree(shards).boxes)).toBe(true);
});

test("drawn compactly, every shard has room for a line, and all stay in their order without a gap", () => {
  const made = compact(tree(Array.from({ length: 40 }, (_, at) => halved(at))), 600);
  const boxes = made.boxes.toSorted((a, b) => a.top - b.top);
  let end = 0;
  for (const box of boxes) {
    close(box.top, end);
    expect((box.bottom - box.top) * made.height >= 19.9, box.shard.shard_id).toBe(true);
    end = box.bottom;
  }
  close(end, 1);
  close(boxes[39].share, 0.5);
});

test("drawn compactly, a shard still covers its children", () => {
  const { boxes } = compact(tree(FAMILY), 600);
  const find = (id) => boxes.find((box) => box.shard.shard_id === id);
  expect(find("a").top).toBe(find("c").top);
  expect(find("a").bottom).toBe(find("d").bottom);
});

test("the first thing to see is the largest hole, then a parked shard, then one whose lease is over", () => {
  const hole = (from, to) => ({
    starting_hash_key: String((SPACE * BigInt(from)) / 100n),
    ending_hash_key: String((SPACE * BigInt(to)) / 100n - 1n),
  });
  const shards = [
    shard("calm", 0, 40),
    shard("over", 40, 60, { state: "expired" }),
    shard("parked", 60, 80, { state: "parked" }),
    shard("former", 80, 100, { state: "parked", is_ended: true }),
  ];
  close(firstProblem(tree(shards, [hole(80, 85), hole(90, 100)])).top, 0.9);
  expect(firstProblem(tree(shards)).shard.shard_id).toBe("parked");
  expect(firstProblem(tree(shards.filter((each) => each.shard_id !== "parked"))).shard.shard_id).toBe("over");
  expect(firstProblem(tree([shards[0], shards[3]]))).toBe(null);
});

/** A shard without hash keys. */
const kin = (id, parents, children) =>
  shard(id, 0, 1, { parents, children, is_ended: children.length > 0, starting_hash_key: null, ending_hash_key: null });

test("shards without hash keys share the place of their parent, and the last ones are equal", () => {
  const layout = tree([
    kin("a", [], ["c", "d"]),
    kin("b", [], ["e"]),
    kin("c", ["a"], []),
    kin("d", ["a"], ["f"]),
    kin("e", ["b"], []),
    kin("f", ["d"], []),
  ]);
  expect(layout.hasHashKeys).toBe(false);
  const thirds = (id) => [boxOf(layout, id).top, boxOf(layout, id).bottom].map((at) => Math.round(at * 3e6) / 1e6);
  expect(["a", "b", "c", "d", "e", "f"].map(thirds)).toEqual([
    [0, 2],
    [2, 3],
    [0, 1],
    [1, 2],
    [2, 3],
    [1, 2],
  ]);
});

test("a shard whose parent has no place of its own is one of the first", () => {
  const { boxes } = tree([kin("a", ["gone"], []), kin("b", [], [])]);
  expect(boxes.map(({ top, bottom }) => [top, bottom])).toEqual([
    [0, 0.5],
    [0.5, 1],
  ]);
});
