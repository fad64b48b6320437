/** The target position of a reset: the choice, and the text that some choices need. */

import { Field, Input, NativeSelect, Stack, Textarea } from "@chakra-ui/react";
import type { ChangeEvent } from "react";
import type { ResetTarget } from "./types";

const CHOICES: Record<string, string> = {
  earliest: "The earliest available position",
  latest: "Now: only new data",
  instant: "An instant",
  number: "After a sequence number",
  positions: "Individual positions of some partitions",
};

const NUMBER = "4959033827149025660855969253836157109592157";

/** what some choices need */
const GIVEN: Record<string, { label: string; placeholder: string; rows?: number }> = {
  instant: { label: "Instant with time zone", placeholder: "2026-01-31T00:00:00Z" },
  number: { label: "Sequence number", placeholder: NUMBER },
  positions: {
    label: "One line for each: partition and position",
    placeholder: `shardId-000000000000 ${NUMBER}`,
    rows: 4,
  },
};

export const EARLIEST: ResetTarget = { name: "earliest", text: "" };

/** Return the target position in the format of the API; not for individual positions. */
export function targetText({ name, text }: ResetTarget) {
  return name in GIVEN ? text.trim() : name;
}

export function TargetField({
  target,
  choices,
  onChange,
}: {
  target: ResetTarget;
  choices: string[];
  onChange: (target: ResetTarget) => void;
}) {
  const given = GIVEN[target.name];
  const typed = {
    value: target.text,
    fontFamily: "mono",
    spellCheck: false,
    dir: "ltr",
    placeholder: given?.placeholder,
    onChange: (event: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) =>
      onChange({ ...target, text: event.target.value }),
  };
  return (
    <Stack gap={2}>
      <Field.Root>
        <Field.Label>Read from</Field.Label>
        <NativeSelect.Root>
          <NativeSelect.Field
            value={target.name}
            onChange={(event) => onChange({ name: event.target.value, text: "" })}
          >
            {choices.map((name) => (
              <option key={name} value={name}>
                {CHOICES[name]}
              </option>
            ))}
          </NativeSelect.Field>
          <NativeSelect.Indicator />
        </NativeSelect.Root>
      </Field.Root>
      {given && (
        <Field.Root required>
          <Field.Label>{given.label}</Field.Label>
          {given.rows === undefined ? <Input {...typed} /> : <Textarea {...typed} rows={given.rows} fontSize="xs" />}
        </Field.Root>
      )}
    </Stack>
  );
}
