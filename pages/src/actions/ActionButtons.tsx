import { Button, Flex } from "@chakra-ui/react";

import type { ConnectionRow } from "../api/schema";
import type { ActionOption } from "../types";

/** The buttons that open the dialogs of actions. Users with read-only access have none. */
export function ActionButtons({
  actions,
  connection,
  onPick,
  size = "xs",
}: {
  actions: ActionOption[];
  connection: ConnectionRow | null;
  onPick: (name: string) => void;
  size?: "2xs" | "xs" | "sm";
}) {
  if (!connection?.may_change || actions.length === 0) return null;
  return (
    <Flex gap={2} wrap="wrap">
      {actions.map(({ name, verb, text, palette, isDisabled }) => (
        <Button
          key={name}
          size={size}
          variant="outline"
          colorPalette={palette}
          disabled={isDisabled}
          title={text}
          data-action={name}
          onClick={() => onPick(name)}
        >
          {`${verb}…`}
        </Button>
      ))}
    </Flex>
  );
}
