/** The workers of a source: their leases, their signs of life, and their Spark jobs. */

import { C, Fragment, h } from "./host.js";
import { addressOf } from "./api.js";
import { Icon } from "./icons.js";
import { useLive } from "./live.js";
import { RelativeTime, Chip, CopyButton, Owner, PageLink } from "./widgets.js";
import { pathOf, sourceApi, withParameters } from "./urls.js";
import { EmptyState, LiveContent } from "./problems.js";
import { SmallTable } from "./small_table.js";
import { JOB_STATES } from "./states.js";
import { countText, plural } from "./text.js";
import { useNow } from "./clock.js";
import { duration, secondsUntil } from "./time.js";

/** @param {{worker: Api.WorkerRow}} props */
function LifeStatus({ worker }) {
  const now = useNow();
  const left = worker.registered_until === null ? null : secondsUntil(worker.registered_until, now);
  return h(
    C.Stack,
    { gap: 0.5 },
    h(
      C.Badge,
      {
        colorPalette: worker.is_live ? "green" : "orange",
        variant: "subtle",
        alignSelf: "flex-start",
        "data-live": worker.is_live,
      },
      worker.is_live ? "Live" : "No sign of life",
    ),
    h(
      C.Text,
      { fontSize: "xs", color: "fg.muted", whiteSpace: "nowrap" },
      left === null
        ? "not registered"
        : left >= 0
          ? `registered for ${duration(left)} more`
          : `registration expired ${duration(left)} ago`,
    ),
  );
}

/** @param {{job: Api.JobFacts|null}} props */
function Job({ job }) {
  if (job === null) return h(C.Text, { as: "span", color: "fg.muted" }, "–");
  return h(
    C.Stack,
    { gap: 0.5, minW: 0 },
    h(
      C.Flex,
      { gap: 2, align: "center" },
      h(Chip, { state: job.state, states: JOB_STATES }),
      job.ui_url &&
        h(
          C.Link,
          {
            href: addressOf(job.ui_url),
            target: "_blank",
            rel: "noopener noreferrer",
            color: "blue.fg",
            fontSize: "xs",
          },
          "Spark UI ",
          h(Icon, { name: "link", size: 3 }),
        ),
    ),
    job.application_id &&
      h(
        C.Flex,
        { align: "center", fontSize: "xs", color: "fg.muted", minW: 0 },
        h(C.Text, { truncate: true, minW: 0, title: job.application_id }, job.application_id),
        h(CopyButton, { text: job.application_id, label: "Copy the id of the application" }),
      ),
    job.stop_reason &&
      h(C.Text, { fontSize: "xs", color: "orange.fg", overflowWrap: "anywhere" }, `stop requested: ${job.stop_reason}`),
  );
}

/**
 * The number of leases of a worker, and its limit if it has one.
 *
 * @param {{leases: number, max_leases: number|null}} props
 */
function leasesOf({ leases, max_leases: limit }) {
  return limit === null ? countText(leases) : `${countText(leases)} of ${countText(limit)}`;
}

/**
 * The page.
 *
 * @param {{place: Place}} props
 */
export function WorkersPage({ place }) {
  const live = useLive(sourceApi(place.connection, place.source, "workers"));
  return h(
    C.Box,
    { minW: 0 },
    h(LiveContent, {
      live,
      what: "workers",
      connection: place.connection,
      children: ({ workers, complete }) =>
        workers.length === 0
          ? h(EmptyState, {
              key: "none",
              title: "No job works on this source now",
              text: "The next run takes the waiting partitions. If none starts, check whether the DAG is paused, the pool is full, or the cluster is down.",
              icon: "plug",
              kind: "empty",
            })
          : h(
              Fragment,
              { key: "workers" },
              h(
                C.Text,
                { fontSize: "sm", color: "fg.muted", mb: 2 },
                `${plural(workers.filter((/** @type {Api.WorkerRow} */ each) => each.is_live).length, "worker")} live, ${plural(
                  workers.reduce((/** @type {number} */ sum, /** @type {Api.WorkerRow} */ each) => sum + each.leases, 0),
                  "lease",
                )}.`,
                !complete && " There are more leases than this page reads.",
              ),
              h(SmallTable, {
                label: "Workers",
                rows: workers,
                keyOf: (worker) => worker.owner.name,
                columns: [
                  {
                    name: "worker",
                    title: "Worker",
                    cell: (worker) =>
                      h(
                        C.Flex,
                        { gap: 1, align: "flex-start", minW: 0 },
                        h(Owner, { owner: worker.owner, withHost: true }),
                        h(CopyButton, { text: worker.owner.name, label: `Copy the owner ${worker.owner.name}` }),
                      ),
                  },
                  { name: "alive", title: "Status", cell: (worker) => h(LifeStatus, { worker }) },
                  {
                    name: "leases",
                    title: "Leases",
                    align: "end",
                    cell: (worker) =>
                      h(
                        PageLink,
                        {
                          to: {
                            pathname: pathOf({ ...place, page: "partitions" }),
                            search: withParameters("", { owner: worker.owner.name }),
                          },
                          "aria-label": `${leasesOf(worker)} ${worker.leases === 1 ? "lease" : "leases"}: show them`,
                        },
                        leasesOf(worker),
                      ),
                  },
                  {
                    name: "slots",
                    title: "Slots",
                    align: "end",
                    cell: (worker) => (worker.slots === null ? "–" : countText(worker.slots)),
                  },
                  { name: "started", title: "Started", cell: (worker) => h(RelativeTime, { instant: worker.started_at }) },
                  { name: "job", title: "Spark job", cell: (worker) => h(Job, { job: worker.job }) },
                ],
              }),
            ),
    }),
  );
}
