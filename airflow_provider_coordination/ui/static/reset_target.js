/** The target position of a reset: the choice, and the text that some choices need. */

import { C, h } from "./host.js";

/** @type {Record<string, string>} */
const CHOICES = {
  earliest: "The earliest available position",
  latest: "Now: only new data",
  instant: "An instant",
  number: "After a sequence number",
  positions: "Individual positions of some partitions",
};

const NUMBER = "4959033827149025660855969253836157109592157";

/** @type {Record<string, {label: string, placeholder: string, rows?: number}>} what some choices need */
const GIVEN = {
  instant: { label: "Instant with time zone", placeholder: "2026-01-31T00:00:00Z" },
  number: { label: "Sequence number", placeholder: NUMBER },
  positions: {
    label: "One line for each: partition and position",
    placeholder: `shardId-000000000000 ${NUMBER}`,
    rows: 4,
  },
};

/** @type {ResetTarget} */
export const EARLIEST = { name: "earliest", text: "" };

/**
 * Return the target position in the format of the API; not for individual positions.
 *
 * @param {ResetTarget} target
 */
export function targetText({ name, text }) {
  return name in GIVEN ? text.trim() : name;
}

/**
 * @param {{target: ResetTarget, choices: string[], onChange: (target: ResetTarget) => void}} props
 */
export function TargetField({ target, choices, onChange }) {
  const given = GIVEN[target.name];
  return h(
    C.Stack,
    { gap: 2 },
    h(
      C.Field.Root,
      null,
      h(C.Field.Label, null, "Read from"),
      h(
        C.NativeSelect.Root,
        null,
        h(
          C.NativeSelect.Field,
          { value: target.name, onChange: (event) => onChange({ name: event.target.value, text: "" }) },
          ...choices.map((name) => h("option", { key: name, value: name }, CHOICES[name])),
        ),
        h(C.NativeSelect.Indicator),
      ),
    ),
    given &&
      h(
        C.Field.Root,
        { required: true },
        h(C.Field.Label, null, given.label),
        h(given.rows === undefined ? C.Input : C.Textarea, {
          value: target.text,
          rows: given.rows,
          fontFamily: "mono",
          fontSize: given.rows === undefined ? undefined : "xs",
          spellCheck: false,
          dir: "ltr",
          placeholder: given.placeholder,
          onChange: (event) => onChange({ ...target, text: event.target.value }),
        }),
      ),
  );
}
