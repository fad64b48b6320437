"""The history of a table that is followed: its items, as they are when its stream is first read.

The shard sync stores the instant at which the changes begin, then creates the partitions of the history, then those of
the shards. So every item is read after that instant, and every change since is in the stream. Consistent reads make an
item at least as new as the instant. A shard is read once the history of its stream is delivered.

A stream that is enabled again is another stream, and has a history of its own. No record shows which items were
deleted in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.dynamodb.kind import EPOCH, DynamoDBTable
from airflow_provider_coordination.sources.dynamodb.segments import SegmentReader, SegmentSupplier
from airflow_provider_coordination.sources.dynamodb_streams.changes import CHANGE_COLUMNS, change_order
from airflow_provider_coordination.sources.items import Item, PartitionProgress, ReadPage
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription
from airflow_provider_coordination.sources.kinesis.stream_names import stream_name

READ = "READ"
"""The operation of an item of the history."""
MAX_SCAN = timedelta(hours=20)
"""The maximum time of a scan: a stream keeps changes for 24 hours, and they must be read before that."""
UNIT_BYTES = 4096
"""The number of bytes that one read unit reads consistently."""
ON_DEMAND_UNITS_PER_SECOND = 40_000.0
"""The maximum read capacity of a table without provisioned capacity, as long as AWS does not raise its quota."""
PARTITIONS_PER_CHECK = 100


def history_key(table: str, epoch: int, segment: int) -> str:
    """Return the key of a partition of a history.

    :param epoch: when the stream was created, in whole seconds since 1970.
    :param segment: the number of the segment, from 0.
    """
    return f"{table}/{epoch}/{segment}"


def history_pages(table: DynamoDBTable, coordinator: SourceCoordinator, described: StreamDescription) -> Iterable[Page]:
    """Return the partitions of the history of a stream.

    :param table: the table, with its connections resolved.
    :param coordinator: of the source.
    :param described: the stream; the instant at which its changes begin is stored.
    :raises ConfigurationError: if reading the table would take longer than the stream keeps changes.
    :raises SourceUnavailableError: if DynamoDB is unavailable.
    """
    return HistorySupplier(table, coordinator, described.creation_epoch)({})


class HistorySupplier(SegmentSupplier):
    """Makes a partition of each segment of a history.

    :param table: the table, with its connections resolved.
    :param coordinator: of the source.
    :param epoch: when the stream was created, in whole seconds since 1970.
    """

    def __init__(self, table: DynamoDBTable, coordinator: SourceCoordinator, epoch: int) -> None:
        super().__init__(replace(table, follow=False), coordinator)
        self._epoch = epoch

    @override
    def check_size(self, table: Mapping[str, Any]) -> None:
        size, units = int(table.get("TableSizeBytes", 0)), self._units_per_second(table)
        scan = timedelta(seconds=size / UNIT_BYTES / units)
        if scan > MAX_SCAN:
            needed = math.ceil(size / UNIT_BYTES / MAX_SCAN.total_seconds())
            raise ConfigurationError(
                f"table {self._settings.table!r} has {table.get('ItemCount', 0)} items and {size / 2**30:.1f} GiB: "
                f"reading it at {units:g} read units a second takes about {scan / timedelta(hours=1):.0f} hours, and "
                f"its stream keeps changes for 24 hours; allow at least {needed} read units a second, in field "
                "'read_units_per_second' and in the table's capacity"
            )

    def _units_per_second(self, table: Mapping[str, Any]) -> float:
        provisioned = float(table.get("ProvisionedThroughput", {}).get("ReadCapacityUnits", 0))
        limits = (self._settings.read_units_per_second, provisioned, ON_DEMAND_UNITS_PER_SECOND)
        return min(limit for limit in limits if limit)

    @override
    def total(self, table_id: str, table: Mapping[str, Any]) -> int:
        """After the store was lost, only segments with items are known."""
        first = self.key(table_id, 0).removesuffix("0")
        keys = (each.partition_key for each in self._coordinator.view.partitions())
        known = next((key for key in keys if key.startswith(first)), None)
        return super().total(table_id, table) if known is None else int(self.items_of(known)[0]["total"])

    @override
    def key(self, table_id: str, segment: int) -> str:
        return history_key(stream_name(self._settings.table), self._epoch, segment)

    @override
    def item(self, **facts: Any) -> dict[str, Any]:
        return {**facts, "keys": sorted(facts["keys"]), EPOCH: self._epoch}  # the order of the keys of changes


class HistoryReader(SegmentReader):
    """Reads the items of a history, with the columns of changes.

    :param settings: the table, with its connections resolved.
    """

    def __init__(self, settings: DynamoDBTable, **options: Any) -> None:
        super().__init__(replace(settings, consistent_read=True), **options)

    @override
    def columns(self, spark: object) -> pa.Schema:
        return CHANGE_COLUMNS

    @override
    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        for page in super().read(item, position):
            yield replace(page, records=self._as_changes(page.records, item))

    def _as_changes(self, items: pa.Table, item: Item) -> pa.Table:
        columns = {
            "table_name": stream_name(self._settings.table),
            "shard_id": self.origin(item),
            "operation": READ,
            "keys": items.column("key"),
            "new_image": items.column("data"),
            "approximate_creation_time": datetime.now(UTC).replace(microsecond=0),
            "is_ttl_delete": False,
            "size_bytes": pc.binary_length(items.column("data")),
            "data": items.column("data"),
            "change_order": change_order(item[EPOCH], pa.array(["0"]))[0].as_py(),
        }
        return pa.table(
            [_column(columns.get(field.name), field.type, items.num_rows) for field in CHANGE_COLUMNS], CHANGE_COLUMNS
        )

    @override
    def identified(self, records: pa.Table, first_row: int) -> pa.Table:
        """An item has no sequence number: its row number takes the place."""
        numbers = pa.array(map(str, range(first_row, first_row + records.num_rows)), pa.string())
        at = CHANGE_COLUMNS.get_field_index("sequence_number")
        return records.set_column(at, CHANGE_COLUMNS.field(at), numbers)


def _column(value: Any, of: pa.DataType, rows: int) -> pa.ChunkedArray | pa.Array:
    if isinstance(value, pa.ChunkedArray):
        return value.cast(of)
    return pa.nulls(rows, of) if value is None else pa.repeat(pa.scalar(value, of), rows)


class HistoryProgress:
    """Knows how far the histories of streams are delivered; for one job.

    :param view: of the source.
    """

    def __init__(self, view: SourceView) -> None:
        self._view = view
        self._delivered: dict[tuple[str, int, int], int] = {}  # by history and its epoch: the number of segments

    def unread(self, table: str, stream_epoch: int, epoch: int) -> Partition | None:
        """Return the first partition of a history that is not delivered; None if there is none.

        :param stream_epoch: when the stream was created, in whole seconds since 1970.
        :param epoch: of the shard that asks: after a reset, the history is read again.
        """
        known = (table, stream_epoch, epoch)
        first = self._view.get(history_key(table, stream_epoch, 0))
        total = 0 if first is None else int(PartitionProgress.from_mapping(first.progress).items[0]["total"])
        while (begin := self._delivered.get(known, 0)) < total:
            keys = [
                history_key(table, stream_epoch, segment)
                for segment in range(begin, min(begin + PARTITIONS_PER_CHECK, total))
            ]
            found = self._view.get_many(keys)
            for key in keys:  # one that a user deleted is not waited for
                if (partition := found.get(key)) is not None and partition.status is not PartitionStatus.COMPLETED:
                    return partition
                self._delivered[known] = self._delivered.get(known, 0) + 1
        return None
