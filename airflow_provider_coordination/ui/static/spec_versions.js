/** The versions of a supervisor's spec: who submitted each, why, what it changed, and the whole of it. */

import { C, Fragment, h, useMemo } from "./host.js";
import { useLive } from "./live.js";
import { Copy, Instant, Part } from "./pieces.js";
import { sourceApi } from "./places.js";
import { Shown } from "./problems.js";
import { changesBetween } from "./spec_changes.js";
import { plural } from "./texts.js";

/** @type {Record<"NONE"|"COSMETIC"|"SUPERVISION"|"JOBS", string>} what follows from a change of the spec */
const CONSEQUENCES = {
  NONE: "Nothing changed",
  COSMETIC: "Jobs went on: only what people read changed",
  SUPERVISION: "Jobs went on: the supervisor acts by it",
  JOBS: "Jobs handed over to jobs of this version",
};

/**
 * @param {{place: Place, parameters: URLSearchParams, change: Change}} props
 */
export function SpecVersions({ place, parameters, change }) {
  const live = useLive(sourceApi(place.connection, place.source, "supervisor/history"), { every: 10 });
  return h(
    Part,
    { title: "Spec" },
    h(Shown, {
      live,
      what: "versions of the spec",
      connection: place.connection,
      isPart: true,
      rows: 3,
      children: ({ versions }) => h(Versions, { key: "versions", versions, parameters, change }),
    }),
  );
}

/**
 * @param {{versions: Api.SpecFacts[], parameters: URLSearchParams, change: Change}} props the latest first
 */
function Versions({ versions, parameters, change }) {
  const asked = Number(parameters.get("version"));
  const chosen = versions.find((each) => each.version === asked) ?? versions[0];
  const former = versions.slice(versions.indexOf(chosen) + 1).find((each) => each.spec !== null);
  const changes = useMemo(
    () => (chosen.spec === null || former === undefined ? [] : changesBetween(former.spec, chosen.spec)),
    [chosen, former],
  );
  const text = chosen.spec === null ? "" : JSON.stringify(chosen.spec, null, 2);
  return h(
    C.Grid,
    { templateColumns: { base: "minmax(0, 1fr)", lg: "minmax(260px, 2fr) minmax(0, 5fr)" }, gap: 4 },
    h(
      C.Stack,
      { as: "ul", "aria-label": "Versions", listStyleType: "none", gap: 1, maxH: "460px", overflowY: "auto", p: "2px" },
      ...versions.map((each) =>
        h(
          C.Box,
          { as: "li", key: each.version },
          h(
            C.chakra.button,
            {
              type: "button",
              "aria-pressed": each === chosen,
              "data-version": each.version,
              w: "full",
              textAlign: "start",
              cursor: "pointer",
              borderWidth: 1,
              borderColor: each === chosen ? "border.info" : "border.emphasized",
              bg: each === chosen ? "bg.muted" : "bg",
              borderRadius: "md",
              px: 3,
              py: 2,
              fontSize: "sm",
              onClick: () => change({ version: each === versions[0] ? null : String(each.version) }),
            },
            h(
              C.Flex,
              { gap: 2, align: "center", wrap: "wrap" },
              h(C.Strong, null, `Version ${each.version}`),
              each.is_termination && h(C.Badge, { size: "xs", variant: "subtle", colorPalette: "gray" }, "terminated"),
              each === versions[0] &&
                !each.is_termination &&
                h(C.Badge, { size: "xs", variant: "subtle", colorPalette: "green" }, "rules"),
            ),
            h(
              C.Text,
              { color: "fg.muted", fontSize: "xs" },
              h(Instant, { instant: each.at }),
              each.by && ` by ${each.by}`,
              each.is_from_file && " from a file",
            ),
            each.reason && h(C.Text, { overflowWrap: "anywhere" }, each.reason),
            each.change !== null &&
              each.version > 1 &&
              h(C.Text, { color: "fg.muted", fontSize: "xs" }, CONSEQUENCES[each.change]),
          ),
        ),
      ),
    ),
    h(
      C.Box,
      { minW: 0 },
      chosen.spec === null
        ? h(C.Text, { fontSize: "sm", color: "fg.muted" }, "The supervisor was terminated with this version: it has no spec.")
        : h(
            Fragment,
            null,
            former !== undefined && h(Changes, { changes, former: former.version }),
            h(
              C.Flex,
              { justify: "space-between", align: "center", mb: 1 },
              h(C.Text, { fontSize: "xs", color: "fg.muted" }, "As it was submitted, secrets hidden"),
              h(Copy, { text, label: `Copy version ${chosen.version} of the spec` }),
            ),
            h(
              C.Box,
              {
                as: "pre",
                tabIndex: 0,
                role: "region",
                "aria-label": `Version ${chosen.version} of the spec`,
                fontSize: "xs",
                fontFamily: "mono",
                borderWidth: 1,
                borderColor: "border.emphasized",
                borderRadius: "md",
                bg: "bg.muted",
                p: 3,
                maxH: "460px",
                overflow: "auto",
                dir: "ltr",
              },
              text,
            ),
          ),
    ),
  );
}

/** @param {{changes: {path: string, before: string|null, after: string|null}[], former: number}} props */
function Changes({ changes, former }) {
  return h(
    C.Box,
    { mb: 3, "data-changes": changes.length },
    h(
      C.Text,
      { fontSize: "sm", mb: 1 },
      changes.length === 0
        ? `It changes nothing since version ${former}.`
        : `${plural(changes.length, "field")} changed since version ${former}:`,
    ),
    h(
      C.Stack,
      { as: "ul", listStyleType: "none", gap: 1, fontSize: "xs", fontFamily: "mono", maxH: "220px", overflowY: "auto" },
      ...changes.map(({ path, before, after }) =>
        h(
          C.Box,
          { as: "li", key: path, overflowWrap: "anywhere" },
          h(C.Strong, null, path),
          ": ",
          h(C.Span, { color: "red.fg", textDecoration: before === null ? undefined : "line-through" }, before ?? "new"),
          " → ",
          h(C.Span, { color: "green.fg" }, after ?? "left out"),
        ),
      ),
    ),
  );
}
