/**
 * The layout of a stream's shards as a family tree: hash keys from top to bottom, to scale, and generations from left to
 * right. Where shards have no hash keys, their lineage gives each one a place. A shard extends from its own generation to its children's. An open shard extends to the right edge, so the
 * right edge shows the current owners and the holes.
 */

import type { ShardNode, StreamTree } from "../api/schema";
import type { Layout, Reach, ShardBox } from "../types";

const SPACE = 1n << 128n;
const STEPS = 1n << 50n;
const READABLE = 20;
const TALLEST = 60000;
/** The share of the last generation that unleased shards leave free, so that a hole is visible. */
const EDGE = 0.5;

/** Return the position of a hash key in the hash-key space, from 0 to 1, as exactly as a number allows. */
export function fractionOf(hashKey: string | bigint) {
  try {
    return Number((BigInt(hashKey) * STEPS) / SPACE) / Number(STEPS);
  } catch {
    return 0;
  }
}

/** Return the start and the end of a hash-key range, from 0 to 1, including its last key. Null if it is not known. */
function rangeOf({
  starting_hash_key: first,
  ending_hash_key: last,
}: {
  starting_hash_key: string | null;
  ending_hash_key: string | null;
}): Reach | null {
  if (first === null || last === null) return null;
  try {
    return { top: fractionOf(BigInt(first)), bottom: fractionOf(BigInt(last) + 1n) };
  } catch {
    return null;
  }
}

/**
 * Return the place of each shard where none has hash keys: children share the place of their parent, so that each of the
 * last shards gets as much as the others.
 *
 * @param shards parents before children
 */
function placesOf(shards: ShardNode[], children: Map<string, Set<string>>) {
  /** the number of last shards that come from each shard */
  const sizes = new Map<string, number>();
  for (const { shard_id: id } of shards.toReversed()) {
    const own = [...(children.get(id) ?? [])].map((child) => sizes.get(child) ?? 0);
    sizes.set(
      id,
      Math.max(
        1,
        own.reduce((sum, size) => sum + size, 0),
      ),
    );
  }
  const isRoot = (shard: ShardNode) => !shard.parents.some((parent) => sizes.has(parent));
  const total = shards.filter(isRoot).reduce((sum, shard) => sum + (sizes.get(shard.shard_id) ?? 0), 0);

  const places = new Map<string, Reach>();
  /** where the next child of each parent begins */
  const next = new Map<string | undefined, number>();
  for (const shard of shards) {
    const parent = isRoot(shard) ? undefined : shard.parents.find((id) => places.has(id));
    const top = next.get(parent) ?? (parent === undefined ? 0 : (places.get(parent)?.top ?? 0));
    const bottom = top + (sizes.get(shard.shard_id) ?? 1) / total;
    next.set(parent, bottom);
    places.set(shard.shard_id, { top, bottom: Math.min(1, bottom) });
  }
  return places;
}

/**
 * Return the range of each shard. The store does not know the range of a shard without a lease: it gets an equal share of
 * the range of its relatives.
 */
function rangesOf(shards: ShardNode[], children: Map<string, Set<string>>) {
  const ranges = new Map<string, Reach>();

  const unknown = new Map<string, { id: string; relatives: string[] }[]>();
  for (const shard of shards) {
    const range = rangeOf(shard);
    if (range !== null) ranges.set(shard.shard_id, range);
  }
  for (const shard of shards.filter((each) => !ranges.has(each.shard_id))) {
    const heirs = [...(children.get(shard.shard_id) ?? [])].filter((id) => ranges.has(id));
    const relatives = heirs.length > 0 ? heirs : shard.parents.filter((id) => ranges.has(id));
    const name = relatives.toSorted().join(" ");
    unknown.set(name, [...(unknown.get(name) ?? []), { id: shard.shard_id, relatives }]);
  }
  for (const sharing of unknown.values()) {
    const of = sharing[0].relatives.flatMap((id) => ranges.get(id) ?? []);
    const top = Math.min(1, ...of.map((range) => range.top));
    const bottom = of.length === 0 ? 1 : Math.max(...of.map((range) => range.bottom));
    const from = of.length === 0 ? 0 : top;
    const share = (bottom - from) / sharing.length;
    sharing.forEach(({ id }, at) => ranges.set(id, { top: from + at * share, bottom: from + (at + 1) * share }));
  }
  return ranges;
}

/** Return the generation of each shard: one after the latest of its parents that are known. */
function generationsOf(shards: ShardNode[]) {
  const generations = new Map<string, number>();
  const known = new Map(shards.map((shard) => [shard.shard_id, shard]));

  const visiting = new Set<string>();

  const find = (id: string): number => {
    const earlier = generations.get(id);
    if (earlier !== undefined) return earlier;
    if (visiting.has(id)) return 0; // a cycle; it is drawn anyway
    visiting.add(id);
    const parents = (known.get(id)?.parents ?? []).filter((parent) => known.has(parent));
    const found = parents.length === 0 ? 0 : 1 + Math.max(...parents.map(find));
    visiting.delete(id);
    generations.set(id, found);
    return found;
  };
  shards.forEach((shard) => find(shard.shard_id));
  return generations;
}

/**
 * Return the layout of a stream: generations as columns, hash keys as fractions.
 *
 * @param stream from the API
 * @returns boxes from top to
 *     bottom and from left to right
 */
export function layOut(stream: StreamTree): Layout {
  const generation = generationsOf(stream.shards);
  const generations = 1 + Math.max(-1, ...generation.values());

  const children = new Map<string, Set<string>>(stream.shards.map((shard) => [shard.shard_id, new Set()]));
  for (const shard of stream.shards) {
    shard.parents.forEach((parent) => children.get(parent)?.add(shard.shard_id));
    shard.children.forEach((child) => generation.has(child) && children.get(shard.shard_id)?.add(child));
  }
  const hasHashKeys = stream.shards.some((shard) => rangeOf(shard) !== null);
  const ranges = hasHashKeys ? rangesOf(stream.shards, children) : placesOf(stream.shards, children);
  const boxes = stream.shards.map((shard) => {
    const from = generation.get(shard.shard_id) ?? 0;
    const next = [...(children.get(shard.shard_id) ?? [])]
      .flatMap((child) => generation.get(child) ?? [])
      .filter((each) => each > from);
    const open = next.length === 0 && !shard.is_ended;
    // The right edge shows the current owners. A shard without a lease has none.
    const edge = shard.state === "unleased" ? generations - EDGE : generations;
    const to = next.length > 0 ? Math.min(...next) : open ? edge : from + 1;
    const range = ranges.get(shard.shard_id) ?? { top: 0, bottom: 1 };
    return { shard, from, to, open, ...range, share: range.bottom - range.top };
  });
  const holes = stream.holes
    .flatMap((hole) => {
      const range = rangeOf(hole);
      return range === null ? [] : [{ hole, ...range }];
    })
    .map((hole) => ({
      ...hole,
      share: hole.bottom - hole.top,
      from: generations - (isCovered(hole, boxes) ? EDGE : 1),
    }));
  boxes.sort((a, b) => a.from - b.from || a.top - b.top || (a.shard.shard_id < b.shard.shard_id ? -1 : 1));
  return {
    generations,
    boxes,
    holes,
    hasHashKeys,
    splits: [...children.values()].filter((each) => each.size > 1).length,
    merges: stream.shards.filter((shard) => shard.parents.filter((parent) => generation.has(parent)).length > 1).length,
  };
}

/** Return whether an unleased shard overlaps a hole. */
function isCovered(hole: Reach, boxes: ShardBox[]) {
  return boxes.some(
    (box) => box.open && box.shard.state === "unleased" && box.top < hole.bottom && box.bottom > hole.top,
  );
}

/**
 * Return the height of the tree, in pixels, at which nearly all shards have room for a line of text.
 *
 * @param boxes as `layOut` returns them
 * @param inSight the visible height, which is the minimum
 */
export function readableHeight(boxes: ShardBox[], inSight: number) {
  const sizes = boxes.map((box) => box.bottom - box.top).filter((size) => size > 0);
  if (sizes.length === 0) return inSight;
  sizes.sort((a, b) => a - b);
  const small = sizes[Math.floor(sizes.length / 20)];
  return Math.round(Math.min(TALLEST, Math.max(inSight, READABLE / small)));
}

/** Return whether the smallest shards are far smaller than the others, so that they would be unreadable to scale. */
export function isUneven(boxes: ShardBox[]) {
  const sizes = boxes.map((box) => box.bottom - box.top).filter((size) => size > 0);
  sizes.sort((a, b) => a - b);
  return sizes.length > 0 && 1 / sizes[Math.floor(sizes.length / 20)] > 3 * boxes.length;
}

/**
 * Return a layout in which small shards are larger and large ones smaller than to scale, so that all are readable. Each
 * range between two boundaries gets the height of one to four lines of text. The order stays the same.
 *
 * @param layout as `layOut` returns it
 * @param inSight the visible height, in pixels
 * @returns the layout, with its `height` in pixels
 */
export function compact(layout: Layout, inSight: number): Layout {
  const all = [...layout.boxes, ...layout.holes];
  const cuts = [...new Set([0, 1, ...all.flatMap((each) => [each.top, each.bottom])])].sort((a, b) => a - b);
  const places = new Map([[cuts[0], 0]]);
  let height = 0;
  for (let at = 1; at < cuts.length; at += 1) {
    height += Math.min(4 * READABLE, Math.max(READABLE, (cuts[at] - cuts[at - 1]) * inSight));
    places.set(cuts[at], height);
  }

  const placed = <Placed extends Reach>(each: Placed): Placed => ({
    ...each,
    top: shareOf(each.top),
    bottom: shareOf(each.bottom),
  });

  const shareOf = (cut: number) => (places.get(cut) ?? 0) / height;
  return {
    ...layout,
    boxes: layout.boxes.map(placed),
    holes: layout.holes.map(placed),
    height: Math.max(height, inSight),
  };
}

/** Return what the user should see first: the largest hole, else an open shard with a problem; null if there is none. */
export function firstProblem({ holes, boxes }: Layout): Reach | null {
  if (holes.length > 0) return holes.reduce((largest, hole) => (hole.share > largest.share ? hole : largest));
  const open = boxes.filter((box) => box.open);
  return open.find((box) => box.shard.state === "parked") ?? open.find((box) => box.shard.state === "expired") ?? null;
}

/** Return the boxes that overlap the part between two heights, in fractions. */
export function boxesBetween(boxes: ShardBox[], top: number, bottom: number) {
  return boxes.filter((box) => box.bottom >= top && box.top <= bottom);
}

/**
 * Return the box that an arrow key leads to: left to a parent, right to a child, up and down within the generation.
 *
 * @returns the other box; the same if there is none
 */
export function neighbour(boxes: ShardBox[], box: ShardBox, key: string): ShardBox {
  if (key === "Home") return boxes[0];
  if (key === "End") return boxes[boxes.length - 1];

  const byId = (ids: string[]) => boxes.find((each) => ids.includes(each.shard.shard_id));
  if (key === "ArrowLeft") return byId(box.shard.parents) ?? box;
  if (key === "ArrowRight") {
    return boxes.find((each) => each.shard.parents.includes(box.shard.shard_id)) ?? byId(box.shard.children) ?? box;
  }
  const same = boxes.filter((each) => each.from === box.from);
  const at = same.indexOf(box) + (key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0);
  return same[Math.min(same.length - 1, Math.max(0, at))];
}
