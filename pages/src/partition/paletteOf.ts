/** The drawer of one partition: its details, and the actions on it. */

const PALETTES_OF_KINDS: Record<string, string> = { failed: "red", "taken over": "orange" };

const PALETTES_OF_STATUSES: Record<string, string> = { ASSIGNED: "cyan", COMPLETED: "green", CLOSED: "yellow" };

export function paletteOf({ kind, status }: { kind: string; status: string | null }) {
  return PALETTES_OF_KINDS[kind] ?? PALETTES_OF_STATUSES[status ?? ""] ?? "gray";
}
