import { Box, Flex, Text } from "@chakra-ui/react";
import { Fragment, useState } from "react";

import { ActionButtons } from "../actions/ActionButtons";
import { ReadOnlyNote } from "../actions/ReadOnlyNote";
import { useLive } from "../api/live";
import { CopyButton } from "../components/CopyButton";
import { EmptyState } from "../components/EmptyState";
import { HeldBy } from "../components/HeldBy";
import { LiveContent } from "../components/LiveContent";
import { PageLink } from "../components/PageLink";
import { RelativeTime } from "../components/RelativeTime";
import { Shortened } from "../components/Shortened";
import { ReleaseDialog } from "../dialogs";
import { countText, plural } from "../format/text";
import { Sinks } from "../supervisor/Sinks";
import { SmallTable } from "../table/SmallTable";
import type { AcknowledgmentSet, PageProps } from "../types";
import { sourceApi, withParameters } from "../urls";
import { OpenHandles } from "./OpenHandles";
import { TimeLeft } from "./TimeLeft";
import { ACKNOWLEDGE, LIMIT, openHandlesOf, REJECT } from "./release";

/** The page. */
export function AcknowledgmentsPage({ place, card, connection, search }: PageProps) {
  const live = useLive<AcknowledgmentSet[]>(
    sourceApi(place.connection, place.source, `acknowledgments?limit=${LIMIT}`),
  );
  const [release, setRelease] = useState<{ set: AcknowledgmentSet; positive: boolean } | null>(null);
  return (
    <Box minW={0}>
      {card !== null && <Sinks sinks={card.sinks} watermark={card.watermark} />}
      {card !== null && <HeldBy watermark={card.watermark} />}
      <LiveContent live={live} what="acknowledgments" connection={place.connection}>
        {(sets) =>
          sets.length === 0 ? (
            <EmptyState
              key="none"
              title="No pending acknowledgments"
              text="Batches appear here while they await acknowledgment by a check, a load, or an external system."
              icon="check"
              kind="empty"
            />
          ) : (
            <Fragment key="sets">
              <Text fontSize="sm" color="fg.muted" mb={2}>
                {sets.length === LIMIT
                  ? `The ${LIMIT} batches that expire first.`
                  : `${plural(sets.length, "batch awaits", "batches await")} acknowledgment. The first to expire comes first.`}
              </Text>
              <ReadOnlyNote connection={connection} />
              <SmallTable
                label="Pending acknowledgment sets"
                rows={sets}
                keyOf={(set) => set.set_id}
                columns={[
                  {
                    name: "batch",
                    title: "Batch",
                    cell: (set) => (
                      <Box minW={0}>
                        <Flex minW={0} align="center">
                          <Shortened text={set.batch_id} fontFamily="mono" fontSize="xs" />
                          <CopyButton text={set.set_id} label={`Copy the id of the set ${set.set_id}`} />
                        </Flex>
                        <PageLink
                          to={{ search: withParameters(search, { partition: set.partition_key }) }}
                          fontSize="xs"
                          minW={0}
                          maxW="full"
                          aria-label={`Partition ${set.partition_key}`}
                        >
                          <Shortened text={set.partition_key} />
                        </PageLink>
                      </Box>
                    ),
                  },
                  { name: "left", title: "Time left", cell: (set) => <TimeLeft set={set} /> },
                  { name: "missing", title: "Missing handles", cell: (set) => <OpenHandles set={set} /> },
                  {
                    name: "records",
                    title: "Records",
                    align: "end",
                    cell: (set) => countText(set.batch.records ?? null),
                  },
                  { name: "since", title: "Waiting since", cell: (set) => <RelativeTime instant={set.created_at} /> },
                  ...(connection?.may_change
                    ? [
                        {
                          name: "actions",
                          title: "Actions",
                          maxW: "none",
                          cell: (set: AcknowledgmentSet) => (
                            <ActionButtons
                              actions={[ACKNOWLEDGE, REJECT].map((each) => ({
                                ...each,
                                isDisabled: openHandlesOf(set).length === 0,
                              }))}
                              connection={connection}
                              onPick={(name) => setRelease({ set, positive: name === ACKNOWLEDGE.name })}
                            />
                          ),
                        },
                      ]
                    : []),
                ]}
              />
            </Fragment>
          )
        }
      </LiveContent>
      {release !== null && (
        <ReleaseDialog
          {...release}
          now={live.response?.find((each) => each.set_id === release.set.set_id) ?? null}
          place={place}
          refresh={live.refresh}
          onClose={() => setRelease(null)}
        />
      )}
    </Box>
  );
}
