/** The controls that the charts share. */

import { C, h } from "./host.js";
import { Dot } from "./widgets.js";

/**
 * A choice of a few options; the URL keeps it.
 *
 * @param {{label: string, value: string, options: [string, string][], onChange: (value: string) => void}} props
 */
export function Choice({ label, value, options, onChange }) {
  return h(
    C.ButtonGroup,
    { size: "xs", variant: "outline", attached: true, role: "group", "aria-label": label },
    ...options.map(([name, text]) =>
      h(
        C.Button,
        {
          key: name,
          "aria-pressed": name === value,
          variant: name === value ? "solid" : "outline",
          colorPalette: name === value ? "brand" : "gray",
          px: 2.5,
          onClick: () => onChange(name),
        },
        text,
      ),
    ),
  );
}

/**
 * The choice between a chart and the same data as a list.
 *
 * @param {{value: string, onChange: (value: string|null) => void}} props
 */
export function ViewChoice({ value, onChange }) {
  return h(Choice, {
    label: "View",
    value,
    options: [
      ["picture", "Chart"],
      ["list", "List"],
    ],
    onChange: (name) => onChange(name === "list" ? name : null),
  });
}

/**
 * The meaning of a chart's colours and marks.
 *
 * @param {{entries: LegendEntry[]}} props
 */
export function Legend({ entries }) {
  return h(
    C.Flex,
    {
      as: "ul",
      "aria-label": "Legend",
      listStyleType: "none",
      wrap: "wrap",
      columnGap: 4,
      rowGap: 1,
      fontSize: "xs",
      color: "fg.muted",
    },
    ...entries.map(({ label, palette, count, sign }) =>
      h(
        C.Flex,
        { as: "li", key: label, align: "center", gap: 1.5 },
        sign ?? h(Dot, { palette: palette ?? "gray" }),
        count !== undefined && h(C.Span, { color: "fg", fontVariantNumeric: "tabular-nums" }, count),
        label,
      ),
    ),
  );
}

/**
 * The details of the item at the pointer or with the focus. They have a fixed place, so that nothing moves or is covered.
 *
 * @param {{children?: Content, hint: string}} props
 */
export function PointerDetails({ children, hint }) {
  return h(
    C.Box,
    {
      minH: "74px",
      borderWidth: 1,
      borderColor: "border.emphasized",
      borderTopWidth: 0,
      borderBottomRadius: "md",
      bg: "bg.muted",
      px: 3,
      py: 2,
      fontSize: "sm",
      flexShrink: 0,
      "data-pointed": true,
    },
    children ?? h(C.Text, { color: "fg.muted" }, hint),
  );
}

/**
 * Return a text, shortened to a width; "" if too little of it would fit.
 *
 * @param {string} text
 * @param {number} width
 * @param {number} [perCharacter]
 */
export function fittingText(text, width, perCharacter = 6.6) {
  const room = Math.floor(width / perCharacter);
  if (room < 3) return "";
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}
