/** The partitions of a source: a table of any length, with filters and an order that the URL keeps, and bulk actions. */

import { Button, Flex, Spinner, Text } from "@chakra-ui/react";
import { functionalUpdate, useTable, type SortingState, type Updater } from "@tanstack/react-table";
import { useCallback, useMemo, useState } from "react";

import { ActionDialog } from "../dialogs";
import { PartitionActionButtons } from "../actions/PartitionActionButtons";
import { EmptyState } from "../components/EmptyState";
import { Loading } from "../components/Loading";
import { ProblemPage } from "../components/ProblemPage";
import { StaleNote } from "../components/StaleNote";
import { countText, plural } from "../format/text";
import { RowsTable } from "../table/RowsTable";
import { features, type RowOf } from "../table/features";
import type { PageProps, Row } from "../types";
import { Filters } from "./Filters";
import { NarrowRow } from "./NarrowRow";
import { columnsOf } from "./columns";
import { isFiltering, orderOf, queryOf } from "./filterOptions";
import { usePartitions } from "./usePartitions";

const WIDE_ROW = 46;
const NARROW_ROW = 84;
const NARROW_BELOW = 760;

/** The page. */
export function PartitionsPage({ place, card, connection, parameters, change }: PageProps) {
  const query = queryOf(parameters);
  const list = usePartitions(place, query);
  const [selected, setSelected] = useState<ReadonlyMap<string, Row>>(new Map());
  const [action, setAction] = useState<string | null>(null);
  const { rows } = list;
  const known = useMemo(() => new Map(rows.map((row) => [row.partition_key, row])), [rows]);
  // Selected partitions stay selected while the user scrolls and filters, in their last known state.
  const chosen = [...selected].map(([key, row]) => known.get(key) ?? row);
  const onOpen = useCallback((key: string) => change({ partition: key }, { keep: true }), [change]);
  const order = orderOf(parameters);
  const sorting = [{ id: order, desc: order !== "urgency" && parameters.get("descending") === "true" }];
  const sort = (updater: Updater<SortingState>) => {
    const [{ id, desc }] = functionalUpdate(updater, sorting);
    change(id === "urgency" ? { order: null, descending: null } : { order: id, descending: desc });
  };
  // The columns stay the same, so that only rows that changed are drawn again.
  const columns = useMemo(() => columnsOf(onOpen), [onOpen]);
  const narrowRow = useCallback((row: RowOf<Row>) => <NarrowRow row={row} onOpen={onOpen} />, [onOpen]);
  const table = useTable({
    features,
    columns,
    data: rows,
    getRowId: (row) => row.partition_key,
    state: { sorting, rowSelection: useMemo(() => selectionOf(selected), [selected]) },
    manualSorting: true,
    enableSortingRemoval: false,
    sortDescFirst: false,
    onSortingChange: sort,
    onRowSelectionChange: (updater) =>
      setSelected((before) => {
        const keys = Object.keys(functionalUpdate(updater, selectionOf(before)));
        return new Map(
          keys.flatMap((key) => {
            const row = known.get(key) ?? before.get(key);
            return row === undefined ? [] : [[key, row]];
          }),
        );
      }),
  });

  const total = card === null ? -1 : Object.values(card.counts).reduce((sum, count) => sum + count, 0);
  const isFiltered = isFiltering(parameters);

  const closeAction = (wasDone: boolean) => {
    setAction(null);
    if (wasDone) {
      setSelected(new Map());
      list.releaseRows();
    }
  };
  return (
    <>
      <Filters card={card} parameters={parameters} change={change} />
      {list.problem !== null && !list.isLoaded ? (
        <ProblemPage problem={list.problem} connection={place.connection} nextAt={list.nextAt} refresh={list.refresh} />
      ) : !list.isShown ? (
        <Loading what="partitions" rows={10} />
      ) : list.isLoaded && rows.length === 0 && !list.hasMore ? (
        <EmptyState
          {...(isFiltered
            ? { title: "No partition matches", text: "Change or clear the filters.", kind: "empty" }
            : {
                title: "No partitions yet",
                text: "Partitions appear when a DAG discovers work for this source. Start a run of its DAG.",
                icon: "tree",
                kind: "empty",
              })}
        />
      ) : (
        <>
          <RowsTable
            name={list.name}
            isBusy={!list.isLoaded}
            label={`Partitions of ${place.source}`}
            table={table}
            total={isFiltered ? (list.hasMore ? -1 : rows.length) : total}
            rowHeight={WIDE_ROW}
            narrowBelow={NARROW_BELOW}
            narrowHeight={NARROW_ROW}
            narrowRow={narrowRow}
            openKey={parameters.get("partition")}
            onSight={list.onSight}
            onStill={list.onStill}
            onOpen={onOpen}
            end={
              list.hasMore && (
                <Flex justify="center" align="center" gap={2} p={3} color="fg.muted" fontSize="sm">
                  <Spinner size="xs" />
                  {rows.length === 0 ? "Searching the partitions…" : "Loading more…"}
                </Flex>
              )
            }
          />
          <Flex
            justify="space-between"
            align="center"
            gap={3}
            pt={2}
            minH={10}
            wrap="wrap"
            flexShrink={0}
            fontSize="sm"
          >
            {selected.size > 0 ? (
              <Flex
                gap={2}
                align="center"
                wrap="wrap"
                role="toolbar"
                aria-label="Actions on the selected partitions"
                data-bulk
              >
                <Text fontWeight="semibold" role="status">
                  {`${countText(selected.size)} selected`}
                </Text>
                <PartitionActionButtons rows={chosen} connection={connection} onPick={setAction} />
                <Button
                  size="xs"
                  variant="ghost"
                  onClick={(event) => {
                    setSelected(new Map());
                    if (event.detail === 0) (document.querySelector("[data-rows]") as HTMLElement | null)?.focus();
                  }}
                >
                  Clear selection
                </Button>
              </Flex>
            ) : (
              <Text color="fg.muted" data-count={rows.length}>
                {countOf(rows.length, list.hasMore, isFiltered ? -1 : total)}
              </Text>
            )}
            {list.heldBack > 0 && (
              <Button size="2xs" variant="surface" onClick={list.releaseRows} data-held-back={list.heldBack}>
                {`Show ${plural(list.heldBack, "change")}`}
              </Button>
            )}
          </Flex>
        </>
      )}
      {list.problem !== null && list.isLoaded && (
        <StaleNote problem={list.problem} connection={place.connection} nextAt={list.nextAt} refresh={list.refresh} />
      )}
      {action !== null && <ActionDialog place={place} action={action} rows={chosen} onClose={closeAction} />}
    </>
  );
}

function countOf(loaded: number, hasMore: boolean, total: number | null) {
  if (total !== null && total >= loaded) return plural(total, "partition");
  return hasMore ? `${plural(loaded, "partition")} loaded; scroll to load more` : plural(loaded, "partition");
}

function selectionOf(selected: ReadonlyMap<string, Row>): Record<string, true> {
  return Object.fromEntries([...selected.keys()].map((key) => [key, true]));
}
