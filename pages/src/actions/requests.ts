/** How an action on many partitions is split into requests, and which version of each item it names. */

import type { AcknowledgmentSet, Row } from "../types";

const MAX_PARTITIONS = 400;
const MAX_CHARACTERS = 36000;

/**
 * Return the partitions of an action in groups that each fit into a request. The API accepts 500 partitions and 48,000
 * characters at once, as Airflow's audit log keeps each request.
 */
export function requestGroups(partitions: { key: string; version: number }[]) {
  const groups: { key: string; version: number }[][] = [];
  let room = 0;
  for (const partition of partitions) {
    const size = sizeOf(partition);
    if (size > room || groups[groups.length - 1].length === MAX_PARTITIONS) {
      groups.push([]);
      room = MAX_CHARACTERS;
    }
    groups[groups.length - 1].push(partition);
    room -= size;
  }
  return groups;
}

/** Return the length of a partition as the server counts it: a character that is not ASCII counts as six. */
function sizeOf(partition: { key: string; version: number }) {
  const text = JSON.stringify(partition);
  let size = 2;
  for (let at = 0; at < text.length; at += 1) size += text.charCodeAt(at) < 128 ? 1 : 6;
  return size;
}

/**
 * Return the version of a partition that an action names. A renewal makes a new version that changes no decision. So it
 * is the version shown now, as long as owner and status are the same as when the dialog opened.
 *
 * @param row as it is shown now
 * @param before as it was shown when the dialog opened
 */
export function versionToSend(row: Row, before: Row) {
  const isSame = before.status === row.status && before.owner?.name === row.owner?.name;
  return isSame ? row.version : before.version;
}

/**
 * Return the version of an acknowledgment set that an action names. Progress makes a new version too. So it is the
 * version shown now, as long as the open references are the same as when the dialog opened.
 *
 * @param set as it is shown now; null if it has ended
 * @param before as it was shown when the dialog opened
 */
export function setVersionToSend(set: AcknowledgmentSet | null, before: AcknowledgmentSet) {
  return set !== null && openReferencesOf(set) === openReferencesOf(before) ? set.version : before.version;
}

function openReferencesOf({ state, references }: { state: string; references: Record<string, number> }) {
  return JSON.stringify([state, Object.entries(references).toSorted()]);
}

/** Return the later of two versions of a partition; the second may be missing. */
export function laterVersion(row: Row, other: Row | undefined) {
  return other !== undefined && other.version > row.version ? other : row;
}
