/** Actions on partitions. Each one names the versions that the user saw, and shows the outcome for each partition. */

export const LISTED = 6;

export const OUTCOMES: Record<string, [string, string]> = {
  stale: ["It has changed since you opened the dialog. It was left unchanged", "orange"],
  refused: ["Refused", "red"],
  missing: ["It no longer exists", "gray"],
};
