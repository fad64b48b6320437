"""The segments of a table's parallel scan: dividing a table into them, and reading one from any key on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.dynamodb.calls import (
    DynamoDBCalls,
    key_at,
    plain_json,
    position_of,
    table_identity,
    typed_values,
)
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.item_kind import ItemSupplier
from airflow_provider_coordination.sources.items import (
    Item,
    ItemGoneError,
    ItemReader,
    ReadPage,
    SourceUnavailableError,
)

log = logging.getLogger(__name__)

SEGMENT_BYTES = 256 * 1024 * 1024
"""The approximate size of a segment if the supplier decides."""
MAX_DERIVED_SEGMENTS = 1024
PAGE_PARTITIONS = 500
READABLE = frozenset({"ACTIVE", "UPDATING"})


class SegmentSupplier(ItemSupplier[DynamoDBTable]):
    """Makes a partition of each segment of a table's scan; a `Supplier`.

    Another run changes nothing, even if the table has grown or `segments` has changed: a scan keeps its first number of
    segments, since only those together are the whole table. A table that was deleted and created again is another
    table.
    """

    @override
    def __call__(self, state: Mapping[str, Any]) -> Iterator[Page]:
        calls = DynamoDBCalls(self._settings.aws, f"table {self._settings.table!r}")
        table = calls("describe_table", TableName=self._settings.table)["Table"]
        if table.get("TableStatus", "ACTIVE") not in READABLE:
            raise SourceUnavailableError(
                f"DynamoDB table {self._settings.table!r} is {table['TableStatus']}; try again when it is ACTIVE"
            )
        self.check_size(table)
        table_id = table_identity(table)
        keys = [key["AttributeName"] for key in sorted(table["KeySchema"], key=lambda key: key["KeyType"])]
        total = self.total(table_id, table)
        size = int(table.get("TableSizeBytes", 0)) // total
        log.info("table %s: %d segments of about %d bytes", self._settings.table, total, size)
        for start in range(0, total, PAGE_PARTITIONS):
            yield Page(
                {
                    self.key(table_id, segment): self.first_progress(
                        self.item(segment=segment, total=total, keys=keys, table_id=table_id, size=size),
                        **self._settings.rereads,
                    )
                    for segment in range(start, min(start + PAGE_PARTITIONS, total))
                }
            )

    def total(self, table_id: str, table: Mapping[str, Any]) -> int:
        """Return the number of segments: of the existing partitions, from the settings, or by the table's size."""
        if first := self.items_of(self.key(table_id, 0)):
            return int(first[0]["total"])
        if self._settings.segments is not None:
            return self._settings.segments
        wanted = -(-int(table.get("TableSizeBytes", 0)) // SEGMENT_BYTES)
        return min(max(wanted, 1), MAX_DERIVED_SEGMENTS)

    def check_size(self, table: Mapping[str, Any]) -> None:
        """Check that a table is not too large to be read; by default, no table is.

        :param table: as DynamoDB describes it.
        :raises ConfigurationError: if it is too large.
        """

    def item(self, **facts: Any) -> dict[str, Any]:
        """Return the item of a segment.

        :param facts: what every segment has.
        """
        return facts

    def key(self, table_id: str, segment: int) -> str:
        """Return the key of the partition of a segment."""
        return "/".join(filter(None, (self._settings.table, table_id, self._settings.scan, str(segment))))


RECORD_SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("data", pa.string())])
"""`key` is the item's key, `data` the whole item, both as plain JSON."""
FIRST_PAGE_ITEMS = 100
"""How many items the first page has if reading is limited: their cost is not known yet."""


class SegmentReader(ItemReader):
    """Reads segments, page by page.

    A position is the key of the last item that was read, as DynamoDB's JSON. DynamoDB continues after it, even if the
    item no longer exists. A scan is not a snapshot: an item that is written during the scan is read before or after the
    write, and an item that exists all the time is read once.

    :param settings: of the source.
    :param sleep: waits that many seconds.
    """

    reads_at_once: int | None = None

    def __init__(self, settings: DynamoDBTable, sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings = settings
        self._sleep = sleep

    @classmethod
    @override
    def from_mapping(cls, settings: Mapping[str, Any]) -> SegmentReader:
        return cls(DynamoDBTable.from_mapping(settings))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the client."""
        return partial(type(self), sleep=self._sleep), (self._settings,)

    @cached_property
    def calls(self) -> DynamoDBCalls:
        """The calls to DynamoDB."""
        return DynamoDBCalls(self._settings.aws, f"table {self._settings.table!r}")

    @override
    def columns(self, spark: object) -> pa.Schema:
        return RECORD_SCHEMA

    @override
    def origin(self, item: Item) -> str:
        return f"{self._settings.table}/{item['segment']} of {item['total']}"

    @override
    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        self._check_table(item)
        request = self._request(item)
        if position:
            request["ExclusiveStartKey"] = key_at(position)
        limit = self._settings.read_units_per_second
        pace = None if limit is None else ReadUnitPace(limit / item["total"])
        while True:
            if pace is not None:
                request["Limit"] = pace.items
            response = self.calls("scan", **request)
            last = response.get("LastEvaluatedKey")
            yield ReadPage(_records(response["Items"], item["keys"]), position_of(last) if last else "")
            if not last:
                return
            request["ExclusiveStartKey"] = last
            if pace is not None:
                self._sleep(pace.after(response))

    def _check_table(self, item: Item) -> None:
        """Check that the table is the one that was divided into segments."""
        table = self.calls("describe_table", TableName=self._settings.table)["Table"]
        if table_identity(table) != item["table_id"]:
            raise ItemGoneError(
                f"the table {self._settings.table!r} that was divided into {item['total']} segments was deleted, and "
                "another table has its name; run the supplier to read that one"
            )

    def _request(self, item: Item) -> dict[str, Any]:
        settings = self._settings
        request = {
            "TableName": settings.table,
            "Segment": item["segment"],
            "TotalSegments": item["total"],
            "ConsistentRead": settings.consistent_read,
            "ReturnConsumedCapacity": "TOTAL",
            "FilterExpression": settings.filter_expression,
            "ProjectionExpression": settings.projection_expression,
            "ExpressionAttributeNames": dict(settings.expression_attribute_names),
            "ExpressionAttributeValues": typed_values(settings.expression_attribute_values),
        }
        return {name: value for name, value in request.items() if value not in (None, {})}


class ReadUnitPace:
    """Limits reading to a number of read units a second, in pages of about a second.

    :param units_per_second: the number of read units.
    """

    def __init__(self, units_per_second: float) -> None:
        self._units_per_second = units_per_second
        self.items = FIRST_PAGE_ITEMS
        """The maximum number of items of the next page."""

    def after(self, response: Mapping[str, Any]) -> float:
        """Return how many seconds to wait after a page."""
        units = float(response.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0))
        if units > 0:
            self.items = max(1, int(response["ScannedCount"] * self._units_per_second / units))
        return units / self._units_per_second


def _records(items: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> pa.Table:
    columns = [
        [plain_json({name: item[name] for name in keys if name in item}) for item in items],
        [plain_json(item) for item in items],
    ]
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=RECORD_SCHEMA)
