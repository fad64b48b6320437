/** How an order for many partitions is put into requests, and which version of each thing a person saw. */

const MOST = 400;
const CHARACTERS = 36000;

/**
 * Return the partitions of an order in groups that each fit into a request: the API takes 500 at once, and 48,000
 * characters, since Airflow's audit log keeps each request.
 *
 * @param {{key: string, version: number}[]} partitions
 */
export function inRequests(partitions) {
  /** @type {{key: string, version: number}[][]} */
  const groups = [];
  let room = 0;
  for (const partition of partitions) {
    const size = sizeOf(partition);
    if (size > room || groups[groups.length - 1].length === MOST) {
      groups.push([]);
      room = CHARACTERS;
    }
    groups[groups.length - 1].push(partition);
    room -= size;
  }
  return groups;
}

/**
 * Return how long it is as the server counts: what is not ASCII is written as six characters.
 *
 * @param {{key: string, version: number}} partition
 */
function sizeOf(partition) {
  const text = JSON.stringify(partition);
  let size = 2;
  for (let at = 0; at < text.length; at += 1) size += text.charCodeAt(at) < 128 ? 1 : 6;
  return size;
}

/**
 * Return the version that a person saw. A renewal makes a new version and nothing that they would decide otherwise for,
 * so while owner and status are as they were when the dialog opened, it is the one that is shown now.
 *
 * @param {Row} row as it is shown now
 * @param {Row} before as it was shown when the dialog opened
 */
export function versionSeen(row, before) {
  const isSame = before.status === row.status && before.owner?.name === row.owner?.name;
  return isSame ? row.version : before.version;
}

/**
 * Return the version of an acknowledgment set that a person saw. Progress makes a new version as well; it is the one that
 * is shown now while the same is owed as when the dialog opened.
 *
 * @param {AcknowledgmentSet|null} set as it is shown now; null where it has ended
 * @param {AcknowledgmentSet} before as it was shown when the dialog opened
 */
export function setVersionSeen(set, before) {
  return set !== null && owedBy(set) === owedBy(before) ? set.version : before.version;
}

/** @param {{state: string, references: Record<string, number>}} props */
function owedBy({ state, references }) {
  return JSON.stringify([state, Object.entries(references).toSorted()]);
}

/**
 * Return the later of two sights of a partition; the second may be missing.
 *
 * @param {Row} row
 * @param {Row|undefined} other
 */
export function laterOf(row, other) {
  return other !== undefined && other.version > row.version ? other : row;
}
