/** The dialog of every action: its effect, its risk, and the reason that the user gives. */

import { Box, Button, Dialog, Field, Input, Portal, Stack, Strong, Text } from "@chakra-ui/react";
import { useRef, useState, type FormEvent } from "react";

import type { Content, ProblemLike } from "../types";
import { ActionProblem } from "./ActionProblem";

const MAX_REASON = 500;

/** A dialog that runs an action once the user has given a reason. */
export function ReasonDialog({
  title,
  text,
  risk,
  verb,
  palette = "brand",
  needsReason = true,
  onClose,
  onConfirm,
  children,
  problem,
  isDone,
  doneContent,
  isBusy,
  size = "md",
}: {
  title: string;
  text?: Content;
  risk?: Content;
  verb: string;
  palette?: string;
  needsReason?: boolean;
  onClose: () => void;
  onConfirm: (reason: string) => unknown;
  children?: Content;
  problem: ProblemLike | null;
  isDone?: boolean;
  doneContent?: Content;
  isBusy: boolean;
  size?: "md" | "xl";
}) {
  const [reason, setReason] = useState("");
  const [isTouched, setTouched] = useState(false);
  const first = useRef<HTMLInputElement>(null);
  const [opener] = useState(() => document.activeElement);
  const isMissing = needsReason && reason.trim() === "";

  const submit = (event: FormEvent) => {
    event.preventDefault();
    setTouched(true);
    if (isMissing) first.current?.focus();
    else if (!isBusy) void onConfirm(reason.trim());
  };
  return (
    <Dialog.Root
      open
      role="alertdialog"
      placement="center"
      size={size}
      scrollBehavior="inside"
      onOpenChange={({ open }) => !open && !isBusy && onClose()}
      // Null would be an error; with undefined the first element gets the focus.
      initialFocusEl={() => first.current}
      finalFocusEl={() => focusTargetAfter(opener)}
      closeOnInteractOutside={false}
    >
      <Portal>
        <Dialog.Backdrop />
        <Dialog.Positioner>
          <Dialog.Content mx={3} data-dialog={verb}>
            <form onSubmit={submit} noValidate style={{ display: "contents" }}>
              <Dialog.Header pb={2}>
                <Dialog.Title overflowWrap="anywhere">{title}</Dialog.Title>
              </Dialog.Header>
              <Dialog.Body>
                {isDone ? (
                  doneContent
                ) : (
                  <Stack gap={4}>
                    <Box>
                      <Dialog.Description color="fg">{text}</Dialog.Description>
                      {risk && (
                        <Text fontSize="sm" color="fg.muted" mt={1}>
                          <Strong>{"Risk: "}</Strong>
                          {risk}
                        </Text>
                      )}
                    </Box>
                    {children}
                    {needsReason && (
                      <Field.Root required invalid={isTouched && isMissing}>
                        <Field.Label>
                          Reason
                          <Field.RequiredIndicator />
                        </Field.Label>
                        <Input
                          ref={first}
                          value={reason}
                          maxLength={MAX_REASON}
                          autoComplete="off"
                          placeholder="Shown in the history and in the audit log"
                          onChange={(event) => setReason(event.target.value)}
                        />
                        <Field.ErrorText>Enter a reason. The history and Airflow’s audit log keep it.</Field.ErrorText>
                      </Field.Root>
                    )}
                    {problem && <ActionProblem problem={problem} />}
                  </Stack>
                )}
              </Dialog.Body>
              <Dialog.Footer pt={3}>
                <Button variant="outline" onClick={onClose} disabled={isBusy} type="button">
                  {isDone ? "Close" : "Cancel"}
                </Button>
                {!isDone && (
                  <Button type="submit" colorPalette={palette} loading={isBusy} loadingText={verb} data-confirm>
                    {verb}
                  </Button>
                )}
              </Dialog.Footer>
            </form>
          </Dialog.Content>
        </Dialog.Positioner>
      </Portal>
    </Dialog.Root>
  );
}

/** Return the element that gets the focus after a dialog: the one that opened it or, if that is gone, one around it. */
function focusTargetAfter(opener: Element | null): HTMLElement | null {
  if (opener?.isConnected && opener !== document.body && !(opener as HTMLButtonElement).disabled)
    return opener as HTMLElement;
  for (const place of ["[data-drawer] [data-close]", "[data-coordination] [data-rows]", "[data-coordination] h1"]) {
    const found = document.querySelector<HTMLElement>(place);
    if (found !== null) return found;
  }
  return null;
}
