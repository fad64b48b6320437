/** The versions of a supervisor's spec: author, reason and changes of each, and its full text. */

import { C, h, useMemo } from "./host.js";
import { useLive } from "./live.js";
import { CopyButton, Instant, Section } from "./widgets.js";
import { sourceApi } from "./urls.js";
import { LiveContent } from "./problems.js";
import { SmallTable, PHONE_WIDTH } from "./small_table.js";
import { changesBetween } from "./spec_changes.js";
import { plural } from "./text.js";
import { Warning } from "./warning.js";

/** @type {Record<string, string>} the consequences of a change of the spec */
const CONSEQUENCES = {
  NONE: "Nothing changed",
  COSMETIC: "Jobs continued: only descriptions changed",
  SUPERVISION: "Jobs continued: only the supervisor uses the change",
  JOBS: "Jobs handed over to new jobs of this version",
};

/**
 * @param {{place: Place, parameters: URLSearchParams, change: Change}} props
 */
export function SpecVersions({ place, parameters, change }) {
  const live = useLive(sourceApi(place.connection, place.source, "supervisor/history"), { every: 10 });
  return h(
    Section,
    { title: "Spec" },
    h(LiveContent, {
      live,
      what: "versions of the spec",
      connection: place.connection,
      isPart: true,
      rows: 3,
      children: ({ versions }) => h(Versions, { key: "versions", place, versions, parameters, change }),
    }),
  );
}

/**
 * @param {{
 *   place: Place, versions: Api.SpecFacts[], parameters: URLSearchParams, change: Change,
 * }} props the latest first; the URL has the selected version and the one that it is compared with
 */
function Versions({ place, versions, parameters, change }) {
  /** @param {string} name */
  const named = (name) => versions.find((each) => each.version === Number(parameters.get(name)));
  const chosen = named("version") ?? versions[0];
  const others = versions.filter((each) => each !== chosen && each.spec !== null);
  const against = named("against");
  const previous = others.find((each) => each === against) ?? others.find((each) => each.version < chosen.version);
  return h(
    C.Grid,
    { templateColumns: { base: "minmax(0, 1fr)", lg: "minmax(240px, 1fr) minmax(0, 4fr)" }, gap: 4 },
    h(
      C.Stack,
      { as: "ul", "aria-label": "Versions", listStyleType: "none", gap: 1, maxH: "460px", overflowY: "auto", p: "2px" },
      ...versions.map((each) =>
        h(
          C.Box,
          { as: "li", key: each.version },
          h(VersionButton, {
            version: each,
            isChosen: each === chosen,
            isLatest: each === versions[0],
            onChoose: () => change({ version: each === versions[0] ? null : String(each.version), against: null }),
          }),
        ),
      ),
    ),
    chosen.spec === null
      ? h(C.Text, { fontSize: "sm", color: "fg.muted" }, "This version terminated the supervisor. It has no spec.")
      : h(
          C.Stack,
          { minW: 0, gap: 4 },
          previous !== undefined &&
            h(Changes, {
              previous,
              chosen,
              others,
              onCompare: (version) => change({ version: String(chosen.version), against: version }),
            }),
          h(Texts, { place, version: chosen.version, spec: chosen.spec }),
        ),
  );
}

/**
 * @param {{version: Api.SpecFacts, isChosen: boolean, isLatest: boolean, onChoose: () => void}} props
 */
function VersionButton({ version, isChosen, isLatest, onChoose }) {
  return h(
    C.chakra.button,
    {
      type: "button",
      "aria-pressed": isChosen,
      "data-version": version.version,
      w: "full",
      textAlign: "start",
      cursor: "pointer",
      borderWidth: 1,
      borderColor: isChosen ? "border.info" : "border.emphasized",
      bg: isChosen ? "bg.muted" : "bg",
      borderRadius: "md",
      px: 3,
      py: 2,
      fontSize: "sm",
      onClick: onChoose,
    },
    h(
      C.Flex,
      { gap: 2, align: "center", wrap: "wrap" },
      h(C.Strong, null, `Version ${version.version}`),
      version.is_termination && h(C.Badge, { size: "xs", variant: "subtle", colorPalette: "gray" }, "terminated"),
      isLatest &&
        !version.is_termination &&
        h(C.Badge, { size: "xs", variant: "subtle", colorPalette: "green" }, "in effect"),
    ),
    h(
      C.Text,
      { color: "fg.muted", fontSize: "xs" },
      h(Instant, { instant: version.at }),
      version.by && ` by ${version.by}`,
      version.is_from_file && " from a file",
    ),
    version.reason && h(C.Text, { overflowWrap: "anywhere" }, version.reason),
    version.change !== null &&
      version.version > 1 &&
      h(C.Text, { color: "fg.muted", fontSize: "xs" }, CONSEQUENCES[version.change]),
  );
}

/**
 * The differences of two versions, one row for each field.
 *
 * @param {{
 *   previous: Api.SpecFacts, chosen: Api.SpecFacts, others: Api.SpecFacts[], onCompare: (version: string) => void,
 * }} props
 */
function Changes({ previous, chosen, others, onCompare }) {
  const changes = useMemo(() => changesBetween(previous.spec, chosen.spec), [previous, chosen]);
  return h(
    C.Box,
    { "data-changes": changes.length },
    h(
      C.Flex,
      { gap: 2, align: "center", wrap: "wrap", mb: 2, fontSize: "sm" },
      changes.length === 0
        ? `Version ${chosen.version} is the same as`
        : `${plural(changes.length, "field differs", "fields differ")} between version ${chosen.version} and`,
      h(
        C.NativeSelect.Root,
        { size: "xs", w: "auto" },
        h(
          C.NativeSelect.Field,
          {
            value: String(previous.version),
            "aria-label": "Compare with version",
            onChange: (event) => onCompare(event.target.value),
          },
          ...others.map(({ version }) => h("option", { key: version, value: String(version) }, `version ${version}`)),
        ),
        h(C.NativeSelect.Indicator),
      ),
    ),
    changes.length > 0 &&
      h(SmallTable, {
        label: "Differences",
        rows: changes,
        keyOf: ({ path }) => path,
        narrowBelow: PHONE_WIDTH,
        columns: [
          { name: "field", title: "Field", maxW: "none", cell: ({ path }) => h(Value, { text: path, isStrong: true }) },
          {
            name: "before",
            title: `Version ${previous.version}`,
            maxW: "none",
            cell: ({ before }) => h(Value, { text: before }),
          },
          {
            name: "after",
            title: `Version ${chosen.version}`,
            maxW: "none",
            cell: ({ after }) => h(Value, { text: after }),
          },
        ],
      }),
  );
}

/** @param {{text: string|null, isStrong?: boolean}} props */
function Value({ text, isStrong = false }) {
  if (text === null) return h(C.Span, { color: "fg.muted", fontSize: "xs" }, "not set");
  return h(
    C.Span,
    { fontFamily: "mono", fontSize: "xs", overflowWrap: "anywhere", fontWeight: isStrong ? "semibold" : undefined },
    text,
  );
}

/**
 * A version as it was submitted, and next to it with every default.
 *
 * @param {{place: Place, version: number, spec: Record<string, any>}} props
 */
function Texts({ place, version, spec }) {
  const path = `supervisor/spec?version=${version}`;
  const live = useLive(sourceApi(place.connection, place.source, path), { every: 30 });
  return h(
    C.Grid,
    { templateColumns: { base: "minmax(0, 1fr)", xl: "repeat(2, minmax(0, 1fr))" }, gap: 4 },
    h(Json, { title: "As submitted, secrets hidden", label: `Version ${version} of the spec`, value: spec }),
    h(LiveContent, {
      live,
      what: "effective spec",
      connection: place.connection,
      isPart: true,
      rows: 3,
      children: ({ effective, problem }) =>
        effective === null
          ? h(Warning, { key: "problem", level: "error", topic: "spec" }, problem)
          : h(Json, {
              key: "effective",
              title: "With every default",
              label: `Version ${version} of the spec, with every default`,
              value: effective,
            }),
    }),
  );
}

/** @param {{title: string, label: string, value: Record<string, any>}} props */
function Json({ title, label, value }) {
  const text = useMemo(() => JSON.stringify(value, null, 2), [value]);
  return h(
    C.Box,
    { minW: 0 },
    h(
      C.Flex,
      { justify: "space-between", align: "center", mb: 1 },
      h(C.Text, { fontSize: "xs", color: "fg.muted" }, title),
      h(CopyButton, { text, label: `Copy ${label.toLowerCase()}` }),
    ),
    h(
      C.Box,
      {
        as: "pre",
        tabIndex: 0,
        role: "region",
        "aria-label": label,
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
  );
}
