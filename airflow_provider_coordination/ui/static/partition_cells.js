/** The cells of a partition's row: its name and last error, its times, its progress. */

import { C, h, useEffect, useRef } from "./host.js";
import { Icon } from "./icons.js";
import { Shortened } from "./widgets.js";
import { countText, plural } from "./text.js";
import { useNow } from "./clock.js";
import { duration, secondsHeld, secondsUntil } from "./time.js";

/**
 * The time of a partition: how long its lease lasts, or how long it has waited.
 *
 * @param {{row: Row}} props
 */
export function Time({ row }) {
  const now = useNow();
  const [sign, text, palette] = timeOf(row, now);
  return h(
    C.Text,
    { as: "span", truncate: true, color: palette ? `${palette}.fg` : undefined, title: `${text} ${sign}` },
    text,
  );
}

/**
 * @param {Row} row
 * @param {number} now
 */
function timeOf(row, now) {
  const since = -secondsUntil(row.priority, now);
  switch (row.state) {
    case "held":
    case "awaiting":
    case "expired": {
      const left = secondsUntil(row.leased_until, now);
      return left >= 0
        ? ["until the lease expires", `${duration(left)} left`]
        : ["since the lease expired", `expired ${duration(left, { short: left <= -60 })} ago`, "orange"];
    }
    case "waiting":
      return ["since it became available", `waiting ${duration(since, { short: since >= 600 })}`];
    case "delayed":
      return ["until it becomes available", `in ${duration(since)}`];
    case "resting":
      return ["until it reopens", `in ${duration(secondsUntil(row.reopen_at, now))}`];
    case "due":
      return ["since it reopened", `due ${duration(since)}`];
    case "completed":
      return ["since it was completed", `${duration(since, { short: true })} ago`];
    default:
      return ["", "–"];
  }
}

/**
 * How long the owner has held a partition, or did until its lease expired.
 *
 * @param {{row: Row}} props
 */
export function HeldFor({ row }) {
  const seconds = secondsHeld(row, useNow());
  return seconds === null ? h(C.Text, { as: "span", color: "fg.muted" }, "–") : duration(seconds, { short: true });
}

/**
 * The progress of a partition: finished items, or batches that are not delivered.
 *
 * @param {{row: Row}} props
 */
export function Progress({ row }) {
  if (!row.is_readable) return h(C.Text, { as: "span", color: "red.fg" }, "unreadable");
  const landed = row.landed_batches > 0 ? `${plural(row.landed_batches, "batch", "batches")} to deliver` : null;
  if (row.items !== null && row.items > 0) {
    const share = Math.min(1, (row.items_done ?? 0) / row.items);
    const text = `${countText(row.items_done ?? 0)} of ${plural(row.items, "item")}`;
    return h(
      C.Box,
      { w: "full", minW: 0, title: landed ?? undefined },
      h(C.Text, { fontSize: "xs", truncate: true }, text, landed && h(C.Span, { color: "fg.muted" }, `, ${landed}`)),
      h(
        C.Box,
        { h: "4px", bg: "bg.emphasized", borderRadius: "full", mt: 1, overflow: "hidden", "aria-hidden": true },
        h(C.Box, { h: "full", bg: "green.solid", style: { width: `${share * 100}%` } }),
      ),
    );
  }
  const title = `${countText(row.landed_records)} records${row.position ? `, position ${row.position}` : ""}`;
  return h(
    C.Text,
    { as: "span", fontSize: "xs", truncate: true, title, color: landed ? undefined : "fg.muted" },
    landed ?? (row.status === "COMPLETED" ? "all delivered" : row.position ? "all delivered so far" : "–"),
  );
}

/**
 * @param {{
 *   label: string, isOn: boolean, isSome?: boolean,
 *   onChange: (event: ReactChangeEvent) => void,
 * }} props
 */
export function Check({ label, isOn, isSome = false, onChange }) {
  const box = useRef(/** @type {HTMLInputElement|null} */ (null));
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = isSome;
  });
  return h("input", {
    ref: box,
    type: "checkbox",
    "aria-label": label,
    checked: isOn,
    onChange,
    style: { width: 16, height: 16, accentColor: "var(--chakra-colors-brand-solid)", cursor: "pointer", flexShrink: 0 },
  });
}

/**
 * The key of a partition, which opens its drawer.
 *
 * @param {{row: Row, onOpen: (key: string) => void}} props
 */
export function Name({ row, onOpen }) {
  return h(
    C.Box,
    { minW: 0, w: "full" },
    h(
      C.chakra.button,
      {
        type: "button",
        "data-opens": true,
        "aria-haspopup": "dialog",
        "aria-label": row.isGone ? `${row.partition_key}, no longer in this list` : row.partition_key,
        display: "flex",
        maxW: "full",
        minW: 0,
        textAlign: "start",
        fontWeight: "medium",
        cursor: "pointer",
        borderRadius: "sm",
        _hover: { textDecoration: "underline" },
        onClick: () => onOpen(row.partition_key),
      },
      h(Shortened, { text: row.partition_key, tail: 28 }),
    ),
    row.last_error &&
      h(
        C.Text,
        { fontSize: "xs", color: "red.fg", truncate: true, title: row.last_error },
        row.attempts > 0 ? `failed ${row.attempts}×: ` : "",
        row.last_error,
      ),
  );
}

/** @param {{title: string, isOn: boolean, isDescending: boolean, hint?: string, onClick: () => void}} props */
export function SortButton({ title, isOn, isDescending, hint, onClick }) {
  return h(
    C.chakra.button,
    {
      type: "button",
      onClick,
      title: hint,
      fontWeight: "semibold",
      cursor: "pointer",
      display: "inline-flex",
      alignItems: "center",
      gap: 1,
      color: isOn ? "fg" : "fg.muted",
    },
    title,
    isOn ? h(C.Span, { "aria-hidden": true }, isDescending ? "↓" : "↑") : h(Icon, { name: "sort", size: 3 }),
  );
}
