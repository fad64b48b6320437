/** Numbers and names as text. */

import type { Owner } from "../api/schema";

const counts = new Intl.NumberFormat("en");
const rough = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });
const PLAIN = /^[\x20-\x7e]*$/;

/** Return a number with thousands separators: `10,000`; a dash if it is unknown. */
export function countText(number: number | null | undefined) {
  return number === null || number === undefined ? "–" : counts.format(number);
}

/** Return a large number rounded, as `1.2M`; a small one exactly. */
export function roughText(number: number) {
  return number >= 100000 ? rough.format(number) : countText(number);
}

/** Return a text with a capital first letter. */
export function capitalized(text: string) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Return `1 partition`, `2 partitions`. */
export function plural(number: number, noun: string, nouns = `${noun}s`) {
  return `${countText(number)} ${number === 1 ? noun : nouns}`;
}

/** Return a rate as `1.5 MiB/s`. */
export function rateText(bytesPerSecond: number | null) {
  if (bytesPerSecond === null || bytesPerSecond === undefined) return "–";
  let value = bytesPerSecond;
  const units = ["B", "KiB", "MiB", "GiB"];
  while (value >= 1024 && units.length > 1) {
    value /= 1024;
    units.shift();
  }
  return `${value < 10 && units[0] !== "B" ? value.toFixed(1) : Math.round(value)} ${units[0]}/s`;
}

/**
 * Return the start of the part of a long name that stays visible if there is no room for all of it: keys differ at their
 * ends. Characters of several code points, such as flags and most emoji, stay whole.
 *
 * @param tail how many characters belong to the end
 * @returns an index; the length of a short name
 */
export function endOf(name: string, tail: number): number {
  if (name.length <= tail + 4) return name.length;
  if (PLAIN.test(name)) return name.length - tail;
  const characters = [...graphemes.segment(name)];
  return characters.length <= tail + 4 ? name.length : characters[characters.length - tail].index;
}

/** Return the name of a shard without the common prefix: `shardId-000000000012` is `12`. A shard of DynamoDB keeps its end. */
export function shardLabel(shardId: string) {
  const match = /^shardId-0*(\d+(?:-[\da-f]+)?)$/.exec(shardId);
  return match === null ? shardId : match[1];
}

/** Return a short label of an owner: the task and its try, or the name if it is not a task. */
export function ownerLabel(owner: Owner | null) {
  if (!owner) return "";
  if (!owner.task_id) return owner.name;
  const mapped = (owner.map_index ?? -1) >= 0 ? `[${owner.map_index}]` : "";
  return `${owner.task_id}${mapped} · try ${owner.try_number}`;
}
