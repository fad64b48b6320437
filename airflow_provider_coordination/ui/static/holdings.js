/** Since when somebody holds a partition, as the history tells. */

/**
 * Return who holds which partition since when.
 *
 * @returns {Map<string, {owner: string, since: string}>} by key; without those of which the history does not tell
 */
export function heldSince(lines) {
  const found = new Map();
  for (const { partition_key: key, holdings } of lines) {
    const last = holdings[holdings.length - 1];
    if (last?.ended_at === null && last.began_at !== null && last.owner !== null) {
      found.set(key, { owner: last.owner.name, since: last.began_at });
    }
  }
  return found;
}

/**
 * Return since when its owner holds a partition; null where its transitions do not tell.
 *
 * @param row a PartitionDetail, whose transitions begin with the latest
 */
export function sinceOf(row) {
  if (row.owner === null) return null;
  const taken = row.transitions.find((each) => each.owner?.name === row.owner.name && each.status === "ASSIGNED");
  return taken?.at ?? null;
}
