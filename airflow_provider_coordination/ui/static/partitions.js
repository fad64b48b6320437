/** The partitions of a source: a table of any length, with filters and an order that the URL keeps, and bulk actions. */

import { PartitionActionButtons, ActionDialog } from "./actions.js";
import { C, Fragment, h, useCallback, useMemo, useRef, useState } from "./host.js";
import { Check, HeldFor, Name, Progress, SortButton, Time } from "./partition_cells.js";
import { Filters, isFiltering, orderOf, queryOf } from "./partition_filters.js";
import { usePartitions } from "./partition_list.js";
import { Chip, Owner } from "./widgets.js";
import { ProblemPage, Loading, EmptyState, StaleNote } from "./problems.js";
import { RowsTable } from "./table.js";
import { countText, plural } from "./text.js";
import { lagText } from "./time.js";

const WIDE_ROW = 46;
const NARROW_ROW = 84;
const NARROW_BELOW = 760;

/**
 * The page.
 *
 * @param {{
 *   place: Place, card: Api.SourceCard|null, connection: Api.ConnectionRow|null, parameters: URLSearchParams,
 *   change: Change,
 * }} props
 */
export function PartitionsPage({ place, card, connection, parameters, change }) {
  const query = queryOf(parameters);
  const list = usePartitions(place, query);
  const [selected, setSelected] = useState(() => /** @type {Map<string, Row>} */ (new Map()));
  const [action, setAction] = useState(/** @type {string|null} */ (null));
  const last = useRef(/** @type {string|null} */ (null));
  const { rows } = list;
  const rowsRef = useRef(rows);
  rowsRef.current = rows;
  const known = useMemo(() => new Map(rows.map((row) => [row.partition_key, row])), [rows]);
  // Selected partitions stay selected while the user scrolls and filters, in their last known state.
  const chosen = [...selected].map(([key, row]) => known.get(key) ?? row);
  const onOpen = useCallback((/** @type {string} */ key) => change({ partition: key }, { keep: true }), [change]);
  const select = useCallback((/** @type {Row} */ row, /** @type {boolean} */ isOn, /** @type {boolean} */ isRange) => {
    const all = rowsRef.current;
    const [from, to] = [last.current, row.partition_key]
      .map((key) => all.findIndex((each) => each.partition_key === key))
      .sort((a, b) => a - b);
    const those = isRange && from >= 0 ? all.slice(from, to + 1) : [row];
    last.current = row.partition_key;
    setSelected((before) => {
      const after = new Map(before);
      those.forEach((each) => (isOn ? after.set(each.partition_key, each) : after.delete(each.partition_key)));
      return after;
    });
  }, []);
  const order = orderOf(parameters);
  const isDescending = order !== "urgency" && parameters.get("descending") === "true";
  const allOn = rows.length > 0 && rows.every((row) => selected.has(row.partition_key));

  /** @param {string} by */
  const sort = (by) =>
    change(
      by === "urgency"
        ? { order: null, descending: null }
        : by === order
          ? { descending: !isDescending }
          : { order: by, descending: null },
    );
  /**
   * @param {string} by
   * @returns {"ascending"|"descending"|"none"}
   */
  const direction = (by) => (by !== order ? "none" : isDescending ? "descending" : "ascending");
  /** @type {Record<string, {title: Content, sort?: "ascending"|"descending"|"other"|"none"}>} */
  const heads = {
    select: {
      title: h(Check, {
        label: `Select all ${rows.length} loaded partitions`,
        isOn: allOn,
        isSome: selected.size > 0 && !allOn,
        onChange: () => setSelected(allOn ? new Map() : new Map(rows.map((row) => [row.partition_key, row]))),
      }),
    },
    state: {
      sort: order === "urgency" ? "other" : "none",
      title: h(SortButton, {
        title: "State",
        isOn: order === "urgency",
        isDescending: false,
        hint: "The most urgent first: parked, lease expired, closed",
        onClick: () => sort("urgency"),
      }),
    },
    key: {
      sort: direction("key"),
      title: h(SortButton, { title: "Partition", isOn: order === "key", isDescending, onClick: () => sort("key") }),
    },
    time: {
      sort: direction("priority"),
      title: h(SortButton, {
        title: "Time",
        isOn: order === "priority",
        isDescending,
        hint: "By status, those that have waited longest first",
        onClick: () => sort("priority"),
      }),
    },
  };
  // The columns stay the same, so that only rows that changed are drawn again.
  const columns = useMemo(
    /** @returns {RowsColumn[]} */ () => [
      {
        name: "select",
        track: "20px",
        cell: (row, isSelected) =>
          h(Check, {
            label: `Select ${row.partition_key}`,
            isOn: isSelected,
            onChange: (event) => select(row, !isSelected, /** @type {MouseEvent} */ (event.nativeEvent).shiftKey),
          }),
      },
      { name: "state", track: "112px", cell: (row) => h(Chip, { state: row.state }) },
      { name: "key", track: "minmax(220px, 2.2fr)", cell: (row) => h(Name, { row, onOpen }) },
      {
        name: "owner",
        track: "minmax(140px, 1.2fr)",
        title: "Owner",
        cell: (row) => h(Owner, { owner: row.owner, withHost: true }),
      },
      { name: "held", track: "72px", title: "Held for", align: "end", cell: (row) => h(HeldFor, { row }) },
      { name: "time", track: "148px", align: "end", cell: (row) => h(Time, { row }) },
      { name: "lag", track: "84px", title: "Lag", align: "end", cell: (row) => lagText(row.lag) },
      { name: "progress", track: "minmax(134px, 1fr)", title: "Progress", cell: (row) => h(Progress, { row }) },
    ],
    [select, onOpen],
  );

  const narrowRow = useCallback(
    (/** @type {Row} */ row, /** @type {boolean} */ isSelected) =>
      h(
        C.Flex,
        { gap: 2.5, minW: 0, align: "flex-start", py: 1.5 },
        h(
          C.Box,
          { pt: "2px" },
          h(Check, {
            label: `Select ${row.partition_key}`,
            isOn: isSelected,
            onChange: (event) => select(row, !isSelected, /** @type {MouseEvent} */ (event.nativeEvent).shiftKey),
          }),
        ),
        h(
          C.Stack,
          { gap: 0.5, minW: 0, flex: 1 },
          h(
            C.Flex,
            { justify: "space-between", gap: 2, align: "center" },
            h(Chip, { state: row.state, size: "xs" }),
            h(C.Box, { fontSize: "xs", fontVariantNumeric: "tabular-nums" }, h(Time, { row })),
          ),
          h(Name, { row: { ...row, last_error: null }, onOpen }),
          h(
            C.Flex,
            { justify: "space-between", gap: 2, fontSize: "xs", color: "fg.muted", minW: 0 },
            row.last_error
              ? h(C.Text, { truncate: true, color: "red.fg", title: row.last_error }, row.last_error)
              : h(Owner, { owner: row.owner }),
            h(
              C.Text,
              { whiteSpace: "nowrap", fontVariantNumeric: "tabular-nums" },
              row.lag === null ? "" : `lag ${lagText(row.lag)}`,
            ),
          ),
        ),
      ),
    [select, onOpen],
  );

  const total = card === null ? -1 : Object.values(card.counts).reduce((sum, count) => sum + count, 0);
  const isFiltered = isFiltering(parameters);
  /** @param {boolean} wasDone */
  const closeAction = (wasDone) => {
    setAction(null);
    if (wasDone) {
      setSelected(new Map());
      list.releaseRows();
    }
  };
  return h(
    Fragment,
    null,
    h(Filters, { card, parameters, change }),
    list.problem !== null && !list.isLoaded
      ? h(ProblemPage, { problem: list.problem, connection: place.connection, nextAt: list.nextAt, refresh: list.refresh })
      : !list.isShown
        ? h(Loading, { what: "partitions", rows: 10 })
        : list.isLoaded && rows.length === 0 && !list.hasMore
          ? h(
              EmptyState,
              isFiltered
                ? { title: "No partition matches", text: "Change or clear the filters.", kind: "empty" }
                : {
                    title: "No partitions yet",
                    text: "Partitions appear when a DAG discovers work for this source. Start a run of its DAG.",
                    icon: "tree",
                    kind: "empty",
                  },
            )
          : h(
              Fragment,
              null,
              h(RowsTable, {
                name: list.name,
                isBusy: !list.isLoaded,
                label: `Partitions of ${place.source}`,
                columns,
                heads,
                rows,
                total: isFiltered ? (list.hasMore ? -1 : rows.length) : total,
                rowHeight: WIDE_ROW,
                narrowBelow: NARROW_BELOW,
                narrowHeight: NARROW_ROW,
                narrowRow,
                selectedKeys: selected,
                openKey: parameters.get("partition"),
                onSight: list.onSight,
                onStill: list.onStill,
                onOpen,
                end:
                  list.hasMore &&
                  h(
                    C.Flex,
                    { justify: "center", align: "center", gap: 2, p: 3, color: "fg.muted", fontSize: "sm" },
                    h(C.Spinner, { size: "xs" }),
                    rows.length === 0 ? "Searching the partitions…" : "Loading more…",
                  ),
              }),
              h(
                C.Flex,
                {
                  justify: "space-between",
                  align: "center",
                  gap: 3,
                  pt: 2,
                  minH: 10,
                  wrap: "wrap",
                  flexShrink: 0,
                  fontSize: "sm",
                },
                selected.size > 0
                  ? h(
                      C.Flex,
                      {
                        gap: 2,
                        align: "center",
                        wrap: "wrap",
                        role: "toolbar",
                        "aria-label": "Actions on the selected partitions",
                        "data-bulk": true,
                      },
                      h(C.Text, { fontWeight: "semibold", role: "status" }, `${countText(selected.size)} selected`),
                      h(PartitionActionButtons, { rows: chosen, connection, onPick: setAction }),
                      h(
                        C.Button,
                        {
                          size: "xs",
                          variant: "ghost",
                          onClick: (event) => {
                            setSelected(new Map());
                            if (event.detail === 0) /** @type {HTMLElement|null} */ (document.querySelector("[data-rows]"))?.focus();
                          },
                        },
                        "Clear selection",
                      ),
                    )
                  : h(
                      C.Text,
                      { color: "fg.muted", "data-count": rows.length },
                      countOf(rows.length, list.hasMore, isFiltered ? -1 : total),
                    ),
                list.heldBack > 0 &&
                  h(
                    C.Button,
                    { size: "2xs", variant: "surface", onClick: list.releaseRows, "data-held-back": list.heldBack },
                    `Show ${plural(list.heldBack, "change")}`,
                  ),
              ),
            ),
    list.problem !== null &&
      list.isLoaded &&
      h(StaleNote, { problem: list.problem, connection: place.connection, nextAt: list.nextAt, refresh: list.refresh }),
    action !== null &&
      h(ActionDialog, {
        place,
        action,
        rows: chosen,
        onClose: closeAction,
      }),
  );
}

/**
 * @param {number} loaded
 * @param {boolean} hasMore
 * @param {number|null} total
 */
function countOf(loaded, hasMore, total) {
  if (total !== null && total >= loaded) return plural(total, "partition");
  return hasMore ? `${plural(loaded, "partition")} loaded; scroll to load more` : plural(loaded, "partition");
}
