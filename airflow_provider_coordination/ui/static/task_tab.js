/** The tab of a DAG run and of a task instance: the partitions that it holds or held. */

import { Freshness } from "./frame.js";
import { C, Fragment, h } from "./host.js";
import { useLive } from "./live.js";
import { Progress, Time } from "./partition_cells.js";
import { Chip, ManualLink, Owner, Shortened, PageLink } from "./widgets.js";
import { pathOf, runApi, withParameters } from "./urls.js";
import { EmptyState, LiveContent } from "./problems.js";
import { SmallTable } from "./small_table.js";
import { plural } from "./text.js";
import { lagText } from "./time.js";

/** Each response may read many pages of history. */
const EVERY_SECONDS = 5;

/** The tab. @param {{dagId: string, runId: string, taskId?: string, mapIndex?: string}} props as Airflow gives them */
export function TaskTab(props) {
  const live = useLive(runApi(props), { every: EVERY_SECONDS });
  const what = props.taskId ? "task instance" : "run";
  return h(
    C.Box,
    { minW: 0, p: 2 },
    h(
      C.Flex,
      { justify: "space-between", align: "center", mb: 2, gap: 2 },
      h(C.Heading, { as: "h2", size: "md" }, "Leases"),
      h(Freshness, { live }),
    ),
    h(LiveContent, {
      live,
      what: "partitions",
      rows: 4,
      children: ({ partitions: rows, complete, unreachable }) => {
        const held = rows.filter((/** @type {Api.RunPartition} */ row) => row.is_held_now).length;
        return h(
          Fragment,
          { key: "partitions" },
          unreachable.length > 0 &&
            h(
              C.Text,
              { fontSize: "sm", color: "orange.fg", mb: 2, role: "alert", overflowWrap: "anywhere" },
              `The store is unavailable: ${unreachable.join(", ")}. Its partitions are missing here. Restore it; this page retries automatically. `,
              h(ManualLink, { topic: "store" }),
            ),
          rows.length === 0
            ? h(EmptyState, {
                title: `This ${what} holds no partition`,
                text: `The history has none either. Leases appear here while a job of this ${what} runs.`,
                icon: "tree",
                kind: "empty",
              })
            : h(
                Fragment,
                null,
                h(
                  C.Text,
                  { fontSize: "sm", color: "fg.muted", mb: 2 },
                  `Holds ${plural(held, "partition")} now, and held ${plural(rows.length - held, "other")} before.`,
                  // The note about an unavailable store is shown already.
                  !complete && unreachable.length === 0 && " There are more than this page reads.",
                ),
                h(SmallTable, {
                  label: `Partitions of this ${what}`,
                  rows,
                  keyOf: (row) => `${row.connection_id} ${row.source} ${row.partition_key}`,
                  columns: [
                    {
                      name: "partition",
                      title: "Partition",
                      cell: (row) =>
                        h(
                          C.Box,
                          { minW: 0 },
                          h(
                            PageLink,
                            {
                              to: {
                                pathname: pathOf({ connection: row.connection_id, source: row.source }),
                                search: withParameters("", { partition: row.partition_key }),
                              },
                              minW: 0,
                              maxW: "full",
                              "aria-label": row.partition_key,
                            },
                            h(Shortened, { text: row.partition_key }),
                          ),
                          h(
                            C.Flex,
                            { fontSize: "xs", color: "fg.muted", minW: 0 },
                            h(
                              PageLink,
                              {
                                to: pathOf({ connection: row.connection_id, source: row.source }),
                                color: "fg.muted",
                                minW: 0,
                                "aria-label": `Source ${row.source} of ${row.connection_id}`,
                              },
                              h(Shortened, { text: `${row.source} · ${row.connection_id}` }),
                            ),
                          ),
                        ),
                    },
                    {
                      name: "held",
                      title: "Lease",
                      cell: (row) =>
                        h(
                          C.Badge,
                          {
                            variant: row.is_held_now ? "subtle" : "outline",
                            colorPalette: row.is_held_now ? "cyan" : "gray",
                          },
                          row.is_held_now ? "held now" : "held before",
                        ),
                    },
                    { name: "state", title: "State now", cell: (row) => h(Chip, { state: row.state }) },
                    { name: "owner", title: "Owner now", cell: (row) => h(Owner, { owner: row.owner }) },
                    { name: "time", title: "Time", align: "end", cell: (row) => h(Time, { row }) },
                    { name: "lag", title: "Lag", align: "end", cell: (row) => lagText(row.lag) },
                    { name: "progress", title: "Progress", cell: (row) => h(Progress, { row }) },
                  ],
                }),
              ),
        );
      },
    }),
  );
}
