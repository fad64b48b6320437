/** The partitions of a source: a table of any length, with filters and an order that the URL keeps, and bulk actions. */

import { Box, Button, Flex, Spinner, Stack, Text } from "@chakra-ui/react";
import { useCallback, useMemo, useRef, useState } from "react";

import { ActionDialog } from "../actions/ActionDialog";
import { PartitionActionButtons } from "../actions/PartitionActionButtons";
import type { ConnectionRow, SourceCard } from "../api/schema";
import { Chip } from "../components/Chip";
import { EmptyState } from "../components/EmptyState";
import { Loading } from "../components/Loading";
import { Owner } from "../components/Owner";
import { ProblemPage } from "../components/ProblemPage";
import { StaleNote } from "../components/StaleNote";
import { countText, plural } from "../format/text";
import { lagText } from "../format/time";
import { RowsTable } from "../table/RowsTable";
import type { Change, Content, Place, Row, RowsColumn } from "../types";
import { Check } from "./Check";
import { Filters } from "./Filters";
import { HeldFor } from "./HeldFor";
import { Name } from "./Name";
import { Progress } from "./Progress";
import { SortButton } from "./SortButton";
import { Time } from "./Time";
import { isFiltering, orderOf, queryOf } from "./filterOptions";
import { usePartitions } from "./usePartitions";

const WIDE_ROW = 46;
const NARROW_ROW = 84;
const NARROW_BELOW = 760;

/** The page. */
export function PartitionsPage({
  place,
  card,
  connection,
  parameters,
  change,
}: {
  place: Place;
  card: SourceCard | null;
  connection: ConnectionRow | null;
  parameters: URLSearchParams;
  change: Change;
}) {
  const query = queryOf(parameters);
  const list = usePartitions(place, query);
  const [selected, setSelected] = useState(() => new Map() as Map<string, Row>);
  const [action, setAction] = useState<string | null>(null);
  const last = useRef<string>(null);
  const { rows } = list;
  const rowsRef = useRef(rows);
  rowsRef.current = rows;
  const known = useMemo(() => new Map(rows.map((row) => [row.partition_key, row])), [rows]);
  // Selected partitions stay selected while the user scrolls and filters, in their last known state.
  const chosen = [...selected].map(([key, row]) => known.get(key) ?? row);
  const onOpen = useCallback((key: string) => change({ partition: key }, { keep: true }), [change]);
  const select = useCallback((row: Row, isOn: boolean, isRange: boolean) => {
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

  const sort = (by: string) =>
    change(
      by === "urgency"
        ? { order: null, descending: null }
        : by === order
          ? { descending: !isDescending }
          : { order: by, descending: null },
    );

  const direction = (by: string): "ascending" | "descending" | "none" =>
    by !== order ? "none" : isDescending ? "descending" : "ascending";

  const heads: Record<string, { title: Content; sort?: "ascending" | "descending" | "other" | "none" }> = {
    select: {
      title: (
        <Check
          label={`Select all ${rows.length} loaded partitions`}
          isOn={allOn}
          isSome={selected.size > 0 && !allOn}
          onChange={() => setSelected(allOn ? new Map() : new Map(rows.map((row) => [row.partition_key, row])))}
        />
      ),
    },
    state: {
      sort: order === "urgency" ? "other" : "none",
      title: (
        <SortButton
          title="State"
          isOn={order === "urgency"}
          isDescending={false}
          hint="The most urgent first: parked, lease expired, closed"
          onClick={() => sort("urgency")}
        />
      ),
    },
    key: {
      sort: direction("key"),
      title: (
        <SortButton title="Partition" isOn={order === "key"} isDescending={isDescending} onClick={() => sort("key")} />
      ),
    },
    time: {
      sort: direction("priority"),
      title: (
        <SortButton
          title="Time"
          isOn={order === "priority"}
          isDescending={isDescending}
          hint="By status, those that have waited longest first"
          onClick={() => sort("priority")}
        />
      ),
    },
  };
  // The columns stay the same, so that only rows that changed are drawn again.
  const columns = useMemo(
    (): RowsColumn[] => [
      {
        name: "select",
        track: "20px",
        cell: (row, isSelected) => (
          <Check
            label={`Select ${row.partition_key}`}
            isOn={isSelected}
            onChange={(event) => select(row, !isSelected, (event.nativeEvent as MouseEvent).shiftKey)}
          />
        ),
      },
      { name: "state", track: "112px", cell: (row) => <Chip state={row.state} /> },
      { name: "key", track: "minmax(220px, 2.2fr)", cell: (row) => <Name row={row} onOpen={onOpen} /> },
      {
        name: "owner",
        track: "minmax(140px, 1.2fr)",
        title: "Owner",
        cell: (row) => <Owner owner={row.owner} withHost />,
      },
      { name: "held", track: "72px", title: "Held for", align: "end", cell: (row) => <HeldFor row={row} /> },
      { name: "time", track: "148px", align: "end", cell: (row) => <Time row={row} /> },
      { name: "lag", track: "84px", title: "Lag", align: "end", cell: (row) => lagText(row.lag) },
      { name: "progress", track: "minmax(134px, 1fr)", title: "Progress", cell: (row) => <Progress row={row} /> },
    ],
    [select, onOpen],
  );

  const narrowRow = useCallback(
    (row: Row, isSelected: boolean) => (
      <Flex gap={2.5} minW={0} align="flex-start" py={1.5}>
        <Box pt="2px">
          <Check
            label={`Select ${row.partition_key}`}
            isOn={isSelected}
            onChange={(event) => select(row, !isSelected, (event.nativeEvent as MouseEvent).shiftKey)}
          />
        </Box>
        <Stack gap={0.5} minW={0} flex={1}>
          <Flex justify="space-between" gap={2} align="center">
            <Chip state={row.state} size="xs" />
            <Box fontSize="xs" fontVariantNumeric="tabular-nums">
              <Time row={row} />
            </Box>
          </Flex>
          <Name row={{ ...row, last_error: null }} onOpen={onOpen} />
          <Flex justify="space-between" gap={2} fontSize="xs" color="fg.muted" minW={0}>
            {row.last_error ? (
              <Text truncate color="red.fg" title={row.last_error}>
                {row.last_error}
              </Text>
            ) : (
              <Owner owner={row.owner} />
            )}
            <Text whiteSpace="nowrap" fontVariantNumeric="tabular-nums">
              {row.lag === null ? "" : `lag ${lagText(row.lag)}`}
            </Text>
          </Flex>
        </Stack>
      </Flex>
    ),
    [select, onOpen],
  );

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
            columns={columns}
            heads={heads}
            rows={rows}
            total={isFiltered ? (list.hasMore ? -1 : rows.length) : total}
            rowHeight={WIDE_ROW}
            narrowBelow={NARROW_BELOW}
            narrowHeight={NARROW_ROW}
            narrowRow={narrowRow}
            selectedKeys={selected}
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
