import type { RowOf } from "../table/features";
import type { Row } from "../types";
import { Check } from "./Check";

/** The checkbox of a row. With shift, it selects all rows from the one that was selected last. */
export function Select({ row }: { row: RowOf<Row> }) {
  return (
    <Check
      label={`Select ${row.id}`}
      isOn={row.getIsSelected()}
      // A row that did not change is not drawn again, so this one may be of an earlier response.
      onChange={(event) => row.table.getRow(row.id).getToggleSelectedHandler()(event)}
    />
  );
}
