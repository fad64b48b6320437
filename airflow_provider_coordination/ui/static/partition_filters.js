/** The filters of a source's partitions. The URL keeps them, and the requests to the API contain them. */

import { C, h, useRef, useState } from "./host.js";
import { Icon } from "./icons.js";
import { countText } from "./text.js";
import { useTypedText } from "./typing.js";

const STATUSES = [
  ["UNASSIGNED", "Waiting"],
  ["ASSIGNED", "Held"],
  ["CLOSED", "Closed"],
  ["COMPLETED", "Completed"],
];
const FLAGS = [
  ["parked", "Parked", "red"],
  ["expired", "Lease expired", "orange"],
  ["failing", "Failing", "orange"],
];
const TEXTS = [
  ["search", "Key contains"],
  ["prefix", "Key starts with"],
  ["owner", "Owner contains"],
];

/** The parameters of the URL for filters and order. */
const PARAMETERS = ["status", ...FLAGS.map(([name]) => name), ...TEXTS.map(([name]) => name), "order", "descending"];

/** Return whether a URL contains filters. @param {URLSearchParams} parameters */
export function isFiltering(parameters) {
  return (
    parameters.has("status") ||
    FLAGS.some(([name]) => parameters.get(name) === "true") ||
    TEXTS.some(([name]) => parameters.get(name))
  );
}

/**
 * Return the query of the API for the filters in a URL, without a start position.
 *
 * @param {URLSearchParams} parameters of the page's URL
 */
export function queryOf(parameters) {
  const query = new URLSearchParams();
  const statuses = parameters.getAll("status").filter((status) => STATUSES.some(([name]) => name === status));
  statuses.forEach((status) => query.append("status", status));
  for (const [flag] of FLAGS) if (parameters.get(flag) === "true") query.set(flag, "true");
  for (const [name] of TEXTS) if (parameters.get(name)) query.set(name, parameters.get(name) ?? "");
  const order = orderOf(parameters);
  query.set("order", order);
  if (order !== "urgency" && parameters.get("descending") === "true") query.set("descending", "true");
  return query.toString();
}

/**
 * Return the order of the list: by urgency if the URL has none.
 *
 * @param {URLSearchParams} parameters of the page's URL
 */
export function orderOf(parameters) {
  const order = parameters.get("order") ?? "";
  return ["key", "priority"].includes(order) ? order : "urgency";
}

/**
 * The filters. The URL keeps their state.
 *
 * @param {{card: Api.SourceCard|null, parameters: URLSearchParams, change: Change}} props
 */
export function Filters({ card, parameters, change }) {
  const active = TEXTS.find(([name]) => parameters.get(name))?.[0];
  const [field, setField] = useState(active ?? "search");
  const [text, setText] = useTypedText(parameters.get(field) ?? "", (typed) => change({ [field]: typed }));
  const input = useRef(/** @type {HTMLInputElement|null} */ (null));
  /**
   * @param {ReactMouseEvent} event
   * @param {string[]} names
   */
  const clear = (event, names) => {
    change(Object.fromEntries(names.map((name) => [name, null])));
    // The pressed button disappears with the focus. Keyboard users continue in the search field.
    if (event.detail === 0) input.current?.focus();
  };
  const statuses = parameters.getAll("status");
  /** @type {Record<string, number|null|undefined>} */
  const counts = {
    ...(card?.counts ?? {}),
    parked: card?.parked,
    failing: card?.failing,
    expired: card?.expired_leases,
  };
  const others = TEXTS.filter(([name]) => name !== field && parameters.get(name));
  /** @param {string} status */
  const toggleStatus = (status) => {
    const next = statuses.includes(status) ? statuses.filter((each) => each !== status) : [...statuses, status];
    change({ status: next });
  };
  return h(
    C.Flex,
    {
      gap: 2,
      mb: 2,
      // Two lines, or one if everything fits: growing counts must not move the table below.
      wrap: { base: "wrap", xl: "nowrap" },
      align: "center",
      role: "search",
      "aria-label": "Filter partitions",
      flexShrink: 0,
    },
    h(
      C.Flex,
      { gap: 1, flex: { base: "1 1 100%", xl: "0 1 400px" } },
      h(
        C.NativeSelect.Root,
        { size: "sm", w: "150px", flexShrink: 0 },
        h(
          C.NativeSelect.Field,
          {
            "aria-label": "Search in",
            value: field,
            onChange: (event) => {
              change({ [field]: null, [event.target.value]: text });
              setField(event.target.value);
            },
          },
          ...TEXTS.map(([name, label]) => h("option", { key: name, value: name }, label)),
        ),
        h(C.NativeSelect.Indicator),
      ),
      h(C.Input, {
        ref: input,
        size: "sm",
        type: "search",
        "aria-label": "Search text",
        placeholder: "Search",
        value: text,
        onChange: (event) => setText(event.target.value),
      }),
    ),
    h(
      C.Flex,
      // The filters take one line, which scrolls sideways if it is too long.
      {
        gap: 1.5,
        align: "center",
        overflowX: "auto",
        flex: { base: "1 1 100%", xl: "1 1 0" },
        minW: 0,
        p: "2px",
        css: { "& > *": { flexShrink: 0 } },
      },
      ...STATUSES.map(([status, label]) =>
        h(Toggle, {
          key: status,
          name: status,
          label,
          count: counts[status],
          isOn: statuses.includes(status),
          onClick: () => toggleStatus(status),
        }),
      ),
      h(C.Box, { as: "span", w: "1px", h: 5, bg: "border.emphasized", "aria-hidden": true }),
      ...FLAGS.map(([flag, label, palette]) =>
        h(Toggle, {
          key: flag,
          name: flag,
          label,
          count: counts[flag],
          palette,
          isOn: parameters.get(flag) === "true",
          onClick: () => change({ [flag]: parameters.get(flag) !== "true" }),
        }),
      ),
      ...others.map(([name, label]) =>
        h(
          C.Button,
          {
            key: name,
            size: "2xs",
            variant: "surface",
            title: parameters.get(name),
            onClick: (event) => clear(event, [name]),
          },
          h(C.VisuallyHidden, null, "Remove the filter: "),
          `${label}: ${parameters.get(name)?.slice(0, 30)}`,
          h(Icon, { name: "close", size: 3 }),
        ),
      ),
      isFiltering(parameters) &&
        h(
          C.Button,
          {
            size: "2xs",
            variant: "plain",
            color: "brand.fg",
            onClick: (event) => clear(event, PARAMETERS),
          },
          "Clear filters",
        ),
    ),
  );
}

/**
 * @param {{
 *   name: string, label: string, count?: number|null, isOn: boolean, palette?: string, onClick: () => void,
 * }} props
 */
function Toggle({ name, label, count, isOn, palette = "brand", onClick }) {
  const isQuiet = !count && !isOn;
  return h(
    C.Button,
    {
      size: "2xs",
      px: 2,
      h: 7,
      variant: isOn ? "solid" : "outline",
      colorPalette: isOn ? "brand" : "gray",
      "aria-pressed": isOn,
      "data-filter": name,
      color: isOn ? undefined : isQuiet ? "fg.muted" : palette === "brand" ? "fg" : `${palette}.fg`,
      onClick,
    },
    label,
    count !== undefined && h(
        C.Span,
        { fontVariantNumeric: "tabular-nums", fontWeight: "normal", minW: "3ch", textAlign: "end" },
        countText(count),
      ),
  );
}
