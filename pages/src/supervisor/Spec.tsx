import { Field, Flex, Textarea } from "@chakra-ui/react";
import type { ChangeEvent } from "react";

export function Spec({
  written,
  isWrong,
  onChange,
  isChecked,
  onCheck,
}: {
  written: string;
  isWrong: boolean;
  onChange: (text: string) => void;
  isChecked: boolean;
  onCheck: (isChecked: boolean) => void;
}) {
  return (
    <>
      <Field.Root required invalid={isWrong}>
        <Field.Label>Spec, as JSON</Field.Label>
        <Textarea
          value={written}
          rows={16}
          fontFamily="mono"
          fontSize="xs"
          spellCheck={false}
          dir="ltr"
          onChange={(event) => onChange(event.target.value)}
        />
      </Field.Root>
      <Flex as="label" gap={2} align="center" fontSize="sm">
        <input
          type="checkbox"
          checked={isChecked}
          onChange={(event: ChangeEvent<HTMLInputElement>) => onCheck(event.target.checked)}
        />
        Check the spec against the source first
      </Flex>
    </>
  );
}
