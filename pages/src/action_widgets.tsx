/** What all actions share: their buttons, their requests to the API, and their outcomes. */

import { Box, Button, Flex, Stack, Text } from "@chakra-ui/react";
import { useEffect, useRef, useState } from "react";

import { readOnlyText } from "./permissions";
import type { ConnectionRow } from "./schema";
import type { Content, ProblemLike, ActionOption } from "./types";

const LISTED = 20;

/** The buttons that open the dialogs of actions. Users with read-only access have none. */
export function ActionButtons({
  actions,
  connection,
  onPick,
  size = "xs",
}: {
  actions: ActionOption[];
  connection: ConnectionRow | null;
  onPick: (name: any) => void;
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

/** The note that users with read-only access see instead of buttons. */
export function ReadOnlyNote({ connection }: { connection: ConnectionRow | null }) {
  if (connection === null || connection.may_change) return null;
  return (
    <Text fontSize="xs" color="fg.muted" data-read-only>
      {readOnlyText(connection.connection_id)}
    </Text>
  );
}

/** Return what runs an action, whether it is running, and why it failed, as `ReasonDialog` expects them. */
export function useAction(): {
  run: (act: () => Promise<void>) => Promise<void>;
  isBusy: boolean;
  problem: ProblemLike | null;
} {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<ProblemLike | null>(null);

  const run = async (act: () => Promise<void>) => {
    setBusy(true);
    setProblem(null);
    try {
      await act();
    } catch (error) {
      // An error that is no response of the server is about the user's input.
      const kind = (error as Partial<ProblemLike>).kind ?? "refused";
      setProblem({ kind, message: error instanceof Error ? error.message : String(error), status: null });
    } finally {
      setBusy(false);
    }
  };
  return { run, isBusy, problem };
}

/** The outcomes of an action that the user should read, one by one. */
export function Outcomes({
  title,
  items,
  children,
}: {
  title: string;
  items: { key: string; palette?: string; outcome?: string; content: Content }[];
  children?: Content;
}) {
  // The element with the focus is gone: screen readers continue here.
  const top = useRef<HTMLDivElement>(null);
  useEffect(() => top.current?.focus(), []);
  return (
    <Stack gap={3} ref={top} tabIndex={-1} outline="none" role="status" data-results>
      <Text fontWeight="semibold">{title}</Text>
      <Stack as="ul" gap={2} listStyleType="none" fontSize="sm">
        {items.slice(0, LISTED).map(({ key, palette = "gray", outcome, content }) => (
          <Box
            as="li"
            key={key}
            borderStartWidth={3}
            borderColor={`${palette}.solid`}
            ps={2}
            overflowWrap="anywhere"
            data-outcome={outcome}
          >
            {content}
          </Box>
        ))}
        {items.length > LISTED && (
          <Text as="li" color="fg.muted">
            {`and ${items.length - LISTED} more`}
          </Text>
        )}
      </Stack>
      {children}
    </Stack>
  );
}
