/** The workers of a source: their leases, their signs of life, and their Spark jobs. */

import { countText } from "../format/text";

/** The number of leases of a worker, and its limit if it has one. */
export function leasesOf({ leases, max_leases: limit }: { leases: number; max_leases: number | null }) {
  return limit === null ? countText(leases) : `${countText(leases)} of ${countText(limit)}`;
}
