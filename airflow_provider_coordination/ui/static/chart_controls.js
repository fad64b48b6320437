/** What the two pictures, the family tree and the timeline, have in common. */

import { C, h } from "./host.js";
import { Dot } from "./widgets.js";

/**
 * Chooses one of a few; what is chosen is in the address.
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
 * Whether one looks at the picture, or at the same as a list.
 *
 * @param {{value: string, onChange: (value: string|null) => void}} props
 */
export function AsChoice({ value, onChange }) {
  return h(Choice, {
    label: "Show as",
    value,
    options: [
      ["picture", "Picture"],
      ["list", "List"],
    ],
    onChange: (name) => onChange(name === "list" ? name : null),
  });
}

/**
 * What a picture's colours and signs mean.
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
 * What is pointed at, or has the focus: always in the same place, so that nothing moves or is covered.
 *
 * @param {{children?: Content, hint: string}} props
 */
export function Pointed({ children, hint }) {
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
 * Return as much of a text as fits into a width; "" where it is too little to be of use.
 *
 * @param {string} text
 * @param {number} width
 * @param {number} [perCharacter]
 */
export function fitting(text, width, perCharacter = 6.6) {
  const room = Math.floor(width / perCharacter);
  if (room < 3) return "";
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}
