/** The tables of a supervisor: its jobs, the lag of each partition, and its errors. */

import { C, Fragment, h } from "./host.js";
import { useLive } from "./live.js";
import { RelativeTime, Chip, CopyButton, Instant, Section, Shortened, PageLink } from "./widgets.js";
import { pathOf, sourceApi, withParameters } from "./urls.js";
import { LiveContent } from "./problems.js";
import { SmallTable, PHONE_WIDTH } from "./small_table.js";
import { byLag, SUPERVISED_JOB_STATES } from "./supervisor_states.js";
import { countText, plural } from "./text.js";
import { duration, lagText } from "./time.js";

/** @param {number|null} milliseconds */
export function lagOf(milliseconds) {
  return milliseconds === null ? "unknown" : lagText(milliseconds / 1000);
}

/**
 * The jobs that have not ended, those with problems first.
 *
 * @param {{status: Api.SupervisorWithVerbs, place: Place}} props
 */
export function SupervisedJobs({ status, place }) {
  const order = Object.keys(SUPERVISED_JOB_STATES);
  const jobs = [...status.jobs].sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
  return h(
    Section,
    { title: "Jobs" },
    jobs.length === 0
      ? h(C.Text, { fontSize: "sm", color: "fg.muted" }, "No job is running.")
      : h(SmallTable, {
          label: "Jobs of the supervisor",
          rows: jobs,
          keyOf: (job) => job.owner,
          columns: [
            {
              name: "job",
              title: "Job",
              cell: (job) =>
                h(
                  C.Flex,
                  { gap: 1, align: "center", minW: 0 },
                  h(
                    PageLink,
                    {
                      to: {
                        pathname: pathOf({ ...place, page: "partitions" }),
                        search: withParameters("", { owner: job.owner }),
                      },
                      minW: 0,
                      "aria-label": `Partitions of ${job.owner}`,
                    },
                    h(Shortened, { text: job.owner, tail: 20 }),
                  ),
                  h(CopyButton, { text: job.owner, label: `Copy the owner ${job.owner}` }),
                ),
            },
            {
              name: "state",
              title: "State",
              cell: (job) =>
                h(
                  C.Stack,
                  { gap: 0.5 },
                  h(Chip, { state: job.state, states: SUPERVISED_JOB_STATES, alignSelf: "flex-start" }),
                  job.stop_reason &&
                    h(C.Text, { fontSize: "xs", color: "fg.muted", overflowWrap: "anywhere" }, job.stop_reason),
                ),
            },
            {
              name: "spec",
              title: "Spec",
              cell: (job) =>
                h(
                  C.Flex,
                  { gap: 1.5, align: "center" },
                  job.spec_version === null ? "–" : `version ${job.spec_version}`,
                  job.is_outdated &&
                    h(
                      C.Badge,
                      { size: "xs", colorPalette: "orange", variant: "subtle", title: "It hands over to a job of the new spec" },
                      "outdated",
                    ),
                ),
            },
            { name: "partitions", title: "Partitions", align: "end", cell: (job) => countText(job.partitions) },
            { name: "slots", title: "Slots", align: "end", cell: (job) => (job.slots === null ? "–" : countText(job.slots)) },
            { name: "lag", title: "Lag", align: "end", cell: (job) => lagOf(job.lag_ms) },
            {
              name: "since",
              title: "Started",
              cell: (job) => (job.started_at === null ? h(C.Text, { color: "fg.muted" }, "planned ", h(RelativeTime, { instant: job.planned_at })) : h(RelativeTime, { instant: job.started_at })),
            },
            {
              name: "remaining",
              title: "Hands over in",
              align: "end",
              cell: (job) => (job.remaining_seconds === null ? "–" : duration(job.remaining_seconds)),
            },
            {
              name: "application",
              title: "Application",
              maxW: "360px",
              cell: (job) => (job.application_id === null ? "–" : h(Shortened, { text: job.application_id, tail: 10 })),
            },
            {
              name: "log",
              title: "Log",
              maxW: "360px",
              cell: (job) => (job.log === null ? "–" : h(Shortened, { text: job.log, tail: 20 })),
            },
          ],
        }),
  );
}

/**
 * The lag of each partition, the worst first.
 *
 * @param {{status: Api.SupervisorWithVerbs, search: string}} props
 */
export function LagOfShards({ status, search }) {
  const { lag } = status;
  const rows = byLag(lag.partitions);
  const maximum = Math.max(1, ...rows.map((row) => row.lag ?? 0));
  return h(
    Section,
    {
      title: "Lag of each partition",
      aside:
        lag.at !== null && h(C.Text, { fontSize: "xs", color: "fg.muted" }, "as of ", h(RelativeTime, { instant: lag.at })),
    },
    rows.length === 0
      ? h(C.Text, { fontSize: "sm", color: "fg.muted" }, "No job has reported a lag yet.")
      : h(
          Fragment,
          null,
          h(
            C.Text,
            { fontSize: "sm", color: "fg.muted", mb: 2 },
            `Longest ${lagOf(lag.oldest_ms)}, average ${lagOf(lag.average_ms)}, sum ${lagOf(lag.sum_ms)}`,
            lag.unknown > 0 && `; unknown for ${plural(lag.unknown, "partition")}`,
            ".",
          ),
          h(SmallTable, {
            label: "Lag of each partition",
            rows,
            keyOf: (row) => row.key,
            narrowBelow: PHONE_WIDTH,
            columns: [
              {
                name: "partition",
                title: "Partition",
                cell: (row) =>
                  h(
                    PageLink,
                    {
                      to: { search: withParameters(search, { partition: row.key }) },
                      display: "flex",
                      minW: 0,
                      maxW: "full",
                      "aria-label": row.key,
                    },
                    h(Shortened, { text: row.key, tail: 20 }),
                  ),
              },
              {
                name: "lag",
                title: "Lag",
                align: "end",
                width: "110px",
                cell: (row) => (row.lag === null ? h(C.Span, { color: "fg.muted" }, lagOf(null)) : lagOf(row.lag)),
              },
              {
                name: "bar",
                title: "",
                width: "35%",
                cell: (row) =>
                  h(
                    C.Box,
                    { h: "6px", mt: 2, bg: "bg.emphasized", borderRadius: "full", overflow: "hidden", "aria-hidden": true },
                    h(C.Box, { h: "full", bg: "blue.solid", style: { width: `${((row.lag ?? 0) / maximum) * 100}%` } }),
                  ),
              },
            ],
          }),
        ),
  );
}

/**
 * The latest errors, the latest first.
 *
 * @param {{errors: Api.ErrorEvent[], search: string}} props
 */
export function Errors({ errors, search }) {
  return h(
    Section,
    { title: "Errors" },
    errors.length === 0
      ? h(C.Text, { fontSize: "sm", color: "fg.muted" }, "No errors.")
      : h(SmallTable, {
          label: "Errors",
          rows: errors,
          keyOf: (error) => `${error.at} ${error.error_class} ${error.owner} ${error.partition}`,
          columns: [
            { name: "at", title: "At", width: "210px", cell: (error) => h(Instant, { instant: error.at }) },
            {
              name: "error",
              title: "Error",
              maxW: "none",
              cell: (error) =>
                h(
                  C.Box,
                  { minW: 0 },
                  h(
                    C.Flex,
                    { gap: 2, align: "center", wrap: "wrap" },
                    h(C.Strong, null, error.error_class),
                    error.is_stream_error &&
                      h(C.Badge, { size: "xs", colorPalette: "orange", variant: "subtle" }, "source error"),
                  ),
                  h(C.Text, { color: "fg.muted", overflowWrap: "anywhere", whiteSpace: "pre-wrap" }, error.message),
                ),
            },
            {
              name: "where",
              title: "Where",
              maxW: "360px",
              cell: (error) =>
                h(
                  C.Stack,
                  { gap: 0.5, minW: 0 },
                  error.partition &&
                    h(
                      PageLink,
                      {
                        to: { search: withParameters(search, { partition: error.partition }) },
                        minW: 0,
                        "aria-label": error.partition,
                      },
                      h(Shortened, { text: error.partition, tail: 20 }),
                    ),
                  error.owner && h(Shortened, { text: error.owner, tail: 20, color: "fg.muted", fontSize: "xs" }),
                  !error.partition && !error.owner && h(C.Text, { color: "fg.muted" }, "supervisor"),
                ),
            },
          ],
        }),
  );
}

/**
 * The bad records that the jobs reported last.
 *
 * @param {{place: Place}} props
 */
export function ParseErrors({ place }) {
  const live = useLive(sourceApi(place.connection, place.source, "supervisor/parse-errors"), { every: 10 });
  return h(
    Section,
    { title: "Bad records" },
    h(LiveContent, {
      live,
      what: "bad records",
      connection: place.connection,
      isPart: true,
      rows: 2,
      children: ({ count, dead_letter_path: path, errors }) => [
        h(
          C.Text,
          { key: "count", fontSize: "sm", color: "fg.muted", mb: errors.length === 0 ? 0 : 2, overflowWrap: "anywhere" },
          count === 0 && errors.length === 0 ? "None." : `${plural(count, "bad record")}. `,
          count > 0 && path !== null && `Dead letters: ${path}.`,
        ),
        errors.length > 0 &&
          h(SmallTable, {
              key: "errors",
              label: "Bad records",
              rows: errors.map((/** @type {any} */ error, /** @type {number} */ index) => ({ ...error, index })),
              keyOf: (error) => String(error.index),
              columns: [
                { name: "at", title: "At", width: "210px", cell: (error) => h(Instant, { instant: error.at }) },
                { name: "stage", title: "Stage", width: "100px", cell: (error) => error.stage ?? "–" },
                {
                  name: "error",
                  title: "Error",
                  maxW: "none",
                  cell: (error) => h(C.Text, { overflowWrap: "anywhere" }, error.error),
                },
                {
                  name: "record",
                  title: "Record",
                  maxW: "none",
                  cell: (error) => h(C.Code, { size: "sm", variant: "surface", overflowWrap: "anywhere" }, recordOf(error)),
                },
              ],
            }),
      ],
    }),
  );
}

/**
 * Return the fields that identify the record of an error.
 *
 * @param {Record<string, any>} error
 */
function recordOf({ at: _at, stage: _stage, error: _error, owner: _owner, index: _index, ...record }) {
  return Object.entries(record)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}=${value}`)
    .join(" ");
}

