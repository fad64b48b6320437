/** A table of some rows, a hundred at first. On narrow screens each row becomes a card. */

import { C, Fragment, h, useState } from "./host.js";
import { useSize } from "./element_size.js";

const SHOWN = 100;

/** In pixels: tables with few columns stay tables down to this width. */
export const PHONE_WIDTH = 520;

/**
 * @param {{
 *   label: string, columns: Column<any>[], rows: any[], keyOf: (row: any) => string, narrowBelow?: number,
 * }} props
 *     the first column is the subject of the row
 */
export function SmallTable({ label, columns, rows, keyOf, narrowBelow = 720 }) {
  const [size, measure] = useSize();
  const [limit, setLimit] = useState(SHOWN);
  const isNarrow = size.width > 0 && size.width < narrowBelow;
  const left = rows.length - limit;
  return h(
    Fragment,
    null,
    h(
      C.Box,
      { ref: measure, minW: 0 },
      h(isNarrow ? Cards : Wide, { label, columns, rows: left > 0 ? rows.slice(0, limit) : rows, keyOf }),
    ),
    left > 0 &&
      h(
        C.Button,
        { mt: 3, size: "sm", variant: "outline", alignSelf: "flex-start", onClick: () => setLimit(limit + SHOWN) },
        `Show ${Math.min(SHOWN, left)} more of ${rows.length}`,
      ),
  );
}

/** @param {{label: string, columns: Column<any>[], rows: any[], keyOf: (row: any) => string}} props */
function Wide({ label, columns, rows, keyOf }) {
  return h(
    C.Box,
    {
      borderWidth: 1,
      borderColor: "border.emphasized",
      borderRadius: "md",
      overflowX: "auto",
      bg: "bg",
      tabIndex: 0,
      role: "region",
      "aria-label": label,
    },
    h(
      C.Table.Root,
      { size: "sm", "aria-label": label },
      h(
        C.Table.Header,
        { bg: "bg.muted" },
        h(
          C.Table.Row,
          { bg: "bg.muted" },
          ...columns.map((column) =>
            h(
              C.Table.ColumnHeader,
              {
                key: column.name,
                scope: "col",
                textAlign: column.align ?? "start",
                color: "fg.muted",
                fontSize: "xs",
                whiteSpace: "nowrap",
                w: column.width,
              },
              column.title,
            ),
          ),
        ),
      ),
      h(
        C.Table.Body,
        null,
        ...rows.map((row) =>
          h(
            C.Table.Row,
            { key: keyOf(row), "data-row": keyOf(row), bg: "transparent", _hover: { bg: "bg.muted" } },
            ...columns.map((column) =>
              h(
                C.Table.Cell,
                {
                  key: column.name,
                  textAlign: column.align ?? "start",
                  verticalAlign: "top",
                  fontVariantNumeric: "tabular-nums",
                  // A number and its unit stay together.
                  whiteSpace: column.align === "end" ? "nowrap" : undefined,
                  maxW: column.maxW ?? "360px",
                },
                column.cell(row),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

/** @param {{label: string, columns: Column<any>[], rows: any[], keyOf: (row: any) => string}} props */
function Cards({ label, columns, rows, keyOf }) {
  const [first, ...others] = columns;
  return h(
    C.Stack,
    { as: "ul", gap: 3, listStyleType: "none", "aria-label": label },
    ...rows.map((row) =>
      h(
        C.Box,
        {
          as: "li",
          key: keyOf(row),
          "data-row": keyOf(row),
          borderWidth: 1,
          borderColor: "border.emphasized",
          borderRadius: "md",
          bg: "bg",
          p: 3,
          fontSize: "sm",
        },
        h(C.Box, { fontWeight: "medium", mb: 2, minW: 0 }, first.cell(row)),
        h(
          C.Grid,
          {
            as: "dl",
            templateColumns: "repeat(auto-fill, minmax(min(100%, 100px), 1fr))",
            columnGap: 3,
            rowGap: 2,
            m: 0,
          },
          ...others.map((column) =>
            h(
              C.Box,
              // Long values get the whole width.
              { key: column.name, minW: 0, gridColumn: column.maxW === undefined ? undefined : "1 / -1" },
              h(C.Text, { as: "dt", fontSize: "xs", color: "fg.muted" }, column.title),
              h(C.Box, { as: "dd", m: 0, minW: 0, fontVariantNumeric: "tabular-nums" }, column.cell(row)),
            ),
          ),
        ),
      ),
    ),
  );
}
