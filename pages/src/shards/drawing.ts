/**
 * The family tree of shards as a chart: hash keys or families from top to bottom, generations from left to right. The right
 * edge is now. Only visible shards are drawn. A strip beside them shows all.
 */

import { ownerLabel, shardLabel } from "../format/text";
import { lagText } from "../format/time";
import { stateOf } from "../states";
import type { ShardBox } from "../types";

export const WIDE_COLUMN = 168;
export const NARROW_COLUMN = 112;
export const HEAD = 24;
export const MAP = 30;
export const TALLEST = 200000;
export const AROUND = 300;
/** A style, as Airflow's own styles override attributes. */
export const TEXT = { fontSize: "11px", pointerEvents: "none" } as const;

/** Return a share of the hash keys as text. */
export function shareText(share: number) {
  const percent = share * 100;
  return `${percent >= 10 ? Math.round(percent) : percent.toPrecision(2)} %`;
}

/** Return the description of a shard for screen readers. */
export function ariaLabelOf(box: ShardBox) {
  const { shard } = box;
  const parts = [`Shard ${shardLabel(shard.shard_id)}`, stateOf(shard.state).label];
  if (shard.owner) parts.push(`owner ${ownerLabel(shard.owner)}`);
  if (shard.lag !== null) parts.push(`lag ${lagText(shard.lag)}`);
  if (shard.starting_hash_key !== null) parts.push(`${shareText(box.share)} of the hash keys`);
  if (shard.parents.length > 1) parts.push(`merged from ${shard.parents.map(shardLabel).join(" and ")}`);
  else if (shard.parents.length === 1) parts.push(`child of ${shardLabel(shard.parents[0])}`);
  if (shard.children.length > 1) parts.push(`split into ${shard.children.map(shardLabel).join(" and ")}`);
  else if (shard.children.length === 1) parts.push(`parent of ${shardLabel(shard.children[0])}`);
  return parts.join(", ");
}

export type DrawnShape = {
  box: ShardBox;
  x: number;
  y: number;
  width: number;
  height: number;
  textX: number;
  textY: number;
  isActive: boolean;
  isFaint: boolean;
  isFound: boolean;
  onPoint: (box: ShardBox, isFocus?: boolean) => void;
  onOpen: (box: ShardBox) => void;
};

export function matches(box: ShardBox, wanted: string) {
  const { shard } = box;
  return (
    shard.shard_id.toLowerCase().includes(wanted) ||
    (shard.owner?.name ?? "").toLowerCase().includes(wanted) ||
    stateOf(shard.state).label.toLowerCase() === wanted
  );
}
