import { Field, Input, NativeSelect, Stack, Textarea } from "@chakra-ui/react";
import type { ChangeEvent } from "react";

import type { ResetTarget } from "../types";
import { CHOICES, GIVEN } from "./resetTarget";

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
