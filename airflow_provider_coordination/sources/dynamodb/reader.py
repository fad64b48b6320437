"""Reading a segment of a table's parallel scan, from any key on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.dynamodb.calls import DynamoDBCalls, table_identity
from airflow_provider_coordination.sources.dynamodb.documents import key_at, plain_json, position_of, typed_values
from airflow_provider_coordination.sources.dynamodb.settings import DynamoDBTable
from airflow_provider_coordination.sources.items import Item, ItemGoneError, KnowsColumns, ReadPage

RECORD_SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("data", pa.string())])
"""`key` is the item's key, `data` the whole item, both as plain JSON."""
FIRST_PAGE_ITEMS = 100
"""How many items the first page has if reading is limited: their cost is not known yet."""


class SegmentReader(KnowsColumns):
    """Reads segments, page by page; an `ItemReader`.

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
    def from_mapping(cls, settings: Mapping[str, Any]) -> SegmentReader:
        """Make it from its settings.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        return cls(DynamoDBTable.from_mapping(settings))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the client."""
        return SegmentReader, (self._settings, self._sleep)

    @cached_property
    def calls(self) -> DynamoDBCalls:
        """The calls to DynamoDB."""
        return DynamoDBCalls(self._settings.aws, f"table {self._settings.table!r}")

    @override
    def columns(self, spark: object) -> pa.Schema:
        return RECORD_SCHEMA

    def origin(self, item: Item) -> str:
        """See `ItemReader.origin`: `<table>/<segment> of <segments>`."""
        return f"{self._settings.table}/{item['segment']} of {item['total']}"

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        """See `ItemReader.read`.

        :raises ItemGoneError: if another table has this name now.
        :raises ConfigurationError: if the table does not exist, access is denied, or an expression is invalid.
        """
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
