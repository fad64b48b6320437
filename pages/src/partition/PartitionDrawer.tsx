import { Box, CloseButton, Drawer, Portal, Text } from "@chakra-ui/react";
import { useEffect, useRef } from "react";

import { useLive } from "../api/live";
import type { ConnectionRow, PartitionDetail } from "../api/schema";
import { CopyButton } from "../components/CopyButton";
import { EmptyState } from "../components/EmptyState";
import { Loading } from "../components/Loading";
import { ProblemPage } from "../components/ProblemPage";
import { StaleNote } from "../components/StaleNote";
import type { Place } from "../types";
import { sourceApi } from "../urls";
import { Details } from "./Details";

/**
 * The drawer.
 *
 * @param props
 *     `connection` is the row of the place's connection in `/connections`, and `hasOrigins` whether the source has a
 *     supervisor, whose page shows the origin of a batch
 */
export function PartitionDrawer({
  place,
  connection,
  partitionKey,
  search,
  hasOrigins = false,
  onClose,
}: {
  place: Place;
  connection: ConnectionRow | null;
  partitionKey: string;
  search: string;
  hasOrigins?: boolean;
  onClose: () => void;
}) {
  const query = new URLSearchParams({ key: partitionKey });
  const live = useLive<PartitionDetail>(sourceApi(place.connection, place.source, `partition?${query}`));
  const close = useRef<HTMLButtonElement>(null);
  const first = useRef(partitionKey);
  useEffect(() => {
    // The link to a relative was clicked, and is gone.
    if (first.current !== partitionKey) close.current?.focus();
    first.current = partitionKey;
  }, [partitionKey]);
  const { response: row, problem, nextAt, refresh } = live;
  const isGone = problem?.kind === "missing";
  return (
    <Drawer.Root
      open
      size={{ base: "full", md: "lg" }}
      onOpenChange={({ open }) => !open && onClose()}
      initialFocusEl={() => close.current}
      // The row may have been drawn again; the key finds it.
      finalFocusEl={() =>
        [...document.querySelectorAll("[data-key]")]
          .find((each) => each.getAttribute("data-key") === partitionKey)
          ?.querySelector("[data-opens]") ?? null
      }
    >
      <Portal>
        <Drawer.Backdrop />
        <Drawer.Positioner>
          <Drawer.Content data-drawer={partitionKey} bg="bg.panel">
            <Drawer.Header
              display="flex"
              alignItems="flex-start"
              gap={2}
              borderBottomWidth={1}
              borderColor="border.emphasized"
              py={3}
            >
              <Box flex={1} minW={0}>
                <Text fontSize="xs" color="fg.muted" truncate>
                  {`Partition of ${place.source}`}
                </Text>
                <Drawer.Title asChild fontSize="md" overflowWrap="anywhere" dir="auto">
                  <h1>{partitionKey}</h1>
                </Drawer.Title>
              </Box>
              <CopyButton text={partitionKey} label="Copy the key of the partition" size="xs" />
              <Drawer.CloseTrigger asChild position="static">
                <CloseButton size="xs" ref={close} aria-label="Close" data-close />
              </Drawer.CloseTrigger>
            </Drawer.Header>
            <Drawer.Body key={partitionKey} py={4}>
              {isGone ? (
                <EmptyState
                  title="This partition no longer exists"
                  text="It was deleted, or removed together with its shard. A later scan of the source may create it again."
                  kind="missing"
                />
              ) : row === null ? (
                problem === null ? (
                  <Loading what="the partition" />
                ) : (
                  <ProblemPage problem={problem} connection={place.connection} nextAt={nextAt} refresh={refresh} />
                )
              ) : (
                <>
                  {problem !== null && (
                    <StaleNote problem={problem} connection={place.connection} nextAt={nextAt} refresh={refresh} />
                  )}
                  <Details
                    row={row}
                    place={place}
                    connection={connection}
                    search={search}
                    hasOrigins={hasOrigins}
                    refresh={refresh}
                  />
                </>
              )}
            </Drawer.Body>
          </Drawer.Content>
        </Drawer.Positioner>
      </Portal>
    </Drawer.Root>
  );
}
