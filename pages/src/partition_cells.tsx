/** The cells of a partition's row: its name and last error, its times, its progress. */

import { Box, Span, Text, chakra } from "@chakra-ui/react";
import { type ChangeEvent, useEffect, useRef } from "react";

import { useNow } from "./clock";
import { Icon } from "./icons";
import { countText, plural } from "./text";
import { duration, secondsHeld, secondsUntil } from "./time";
import { Shortened } from "./widgets";
import type { Row } from "./types";

/** The time of a partition: how long its lease lasts, or how long it has waited. */
export function Time({ row }: { row: Row }) {
  const now = useNow();
  const [sign, text, palette] = timeOf(row, now);
  return (
    <Text as="span" truncate color={palette ? `${palette}.fg` : undefined} title={`${text} ${sign}`}>
      {text}
    </Text>
  );
}

function timeOf(row: Row, now: number) {
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

/** How long the owner has held a partition, or did until its lease expired. */
export function HeldFor({ row }: { row: Row }) {
  const seconds = secondsHeld(row, useNow());
  return seconds === null ? (
    <Text as="span" color="fg.muted">
      –
    </Text>
  ) : (
    duration(seconds, { short: true })
  );
}

/** The progress of a partition: finished items, or batches that are not delivered. */
export function Progress({ row }: { row: Row }) {
  if (!row.is_readable)
    return (
      <Text as="span" color="red.fg">
        unreadable
      </Text>
    );
  const landed = row.landed_batches > 0 ? `${plural(row.landed_batches, "batch", "batches")} to deliver` : null;
  if (row.items !== null && row.items > 0) {
    const share = Math.min(1, (row.items_done ?? 0) / row.items);
    const text = `${countText(row.items_done ?? 0)} of ${plural(row.items, "item")}`;
    return (
      <Box w="full" minW={0} title={landed ?? undefined}>
        <Text fontSize="xs" truncate>
          {text}
          {landed && <Span color="fg.muted">{`, ${landed}`}</Span>}
        </Text>
        <Box h="4px" bg="bg.emphasized" borderRadius="full" mt={1} overflow="hidden" aria-hidden>
          <Box h="full" bg="green.solid" style={{ width: `${share * 100}%` }} />
        </Box>
      </Box>
    );
  }
  const title = `${countText(row.landed_records)} records${row.position ? `, position ${row.position}` : ""}`;
  return (
    <Text as="span" fontSize="xs" truncate title={title} color={landed ? undefined : "fg.muted"}>
      {landed ?? (row.status === "COMPLETED" ? "all delivered" : row.position ? "all delivered so far" : "–")}
    </Text>
  );
}

export function Check({
  label,
  isOn,
  isSome = false,
  onChange,
}: {
  label: string;
  isOn: boolean;
  isSome?: boolean;
  onChange: (event: ChangeEvent<HTMLInputElement>) => void;
}) {
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = isSome;
  });
  return (
    <input
      ref={box}
      type="checkbox"
      aria-label={label}
      checked={isOn}
      onChange={onChange}
      style={{
        width: 16,
        height: 16,
        accentColor: "var(--chakra-colors-brand-solid)",
        cursor: "pointer",
        flexShrink: 0,
      }}
    />
  );
}

/** The key of a partition, which opens its drawer. */
export function Name({ row, onOpen }: { row: Row; onOpen: (key: string) => void }) {
  return (
    <Box minW={0} w="full">
      <chakra.button
        type="button"
        data-opens
        aria-haspopup="dialog"
        aria-label={row.isGone ? `${row.partition_key}, no longer in this list` : row.partition_key}
        display="flex"
        maxW="full"
        minW={0}
        textAlign="start"
        fontWeight="medium"
        cursor="pointer"
        borderRadius="sm"
        _hover={{ textDecoration: "underline" }}
        onClick={() => onOpen(row.partition_key)}
      >
        <Shortened text={row.partition_key} tail={28} />
      </chakra.button>
      {row.last_error && (
        <Text fontSize="xs" color="red.fg" truncate title={row.last_error}>
          {row.attempts > 0 ? `failed ${row.attempts}×: ` : ""}
          {row.last_error}
        </Text>
      )}
    </Box>
  );
}

export function SortButton({
  title,
  isOn,
  isDescending,
  hint,
  onClick,
}: {
  title: string;
  isOn: boolean;
  isDescending: boolean;
  hint?: string;
  onClick: () => void;
}) {
  return (
    <chakra.button
      type="button"
      onClick={onClick}
      title={hint}
      fontWeight="semibold"
      cursor="pointer"
      display="inline-flex"
      alignItems="center"
      gap={1}
      color={isOn ? "fg" : "fg.muted"}
    >
      {title}
      {isOn ? <Span aria-hidden>{isDescending ? "↓" : "↑"}</Span> : <Icon name="sort" size={3} />}
    </chakra.button>
  );
}
