import { Box, Button } from "@chakra-ui/react";
import { createElement, useState } from "react";

import { useSize } from "../components/useSize";
import type { Column } from "../types";
import { Cards } from "./Cards";
import { Wide } from "./Wide";
import { SHOWN } from "./limits";

/**
 * @param props
 *     the first column is the subject of the row
 */
export function SmallTable({
  label,
  columns,
  rows,
  keyOf,
  narrowBelow = 720,
}: {
  label: string;
  columns: Column<any>[];
  rows: any[];
  keyOf: (row: any) => string;
  narrowBelow?: number;
}) {
  const [size, measure] = useSize();
  const [limit, setLimit] = useState(SHOWN);
  const isNarrow = size.width > 0 && size.width < narrowBelow;
  const left = rows.length - limit;
  return (
    <>
      <Box ref={measure} minW={0}>
        {createElement(isNarrow ? Cards : Wide, {
          label,
          columns,
          rows: left > 0 ? rows.slice(0, limit) : rows,
          keyOf,
        })}
      </Box>
      {left > 0 && (
        <Button mt={3} size="sm" variant="outline" alignSelf="flex-start" onClick={() => setLimit(limit + SHOWN)}>
          {`Show ${Math.min(SHOWN, left)} more of ${rows.length}`}
        </Button>
      )}
    </>
  );
}
