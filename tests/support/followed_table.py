"""A `History` of a table that is followed: its items, then its changes, and what a merging sink makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.dynamodb import calls
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.dynamodb_streams.history import history_pages
from airflow_provider_coordination.sources.kinesis.positions import LATEST
from airflow_provider_coordination.sources.kinesis.sync import ShardSync
from airflow_provider_coordination.spark import item_reading
from airflow_provider_coordination.spark.delivery import Delivery
from airflow_provider_coordination.spark.dynamodb_streams.following import FollowedReading
from airflow_provider_coordination.spark.item_landing import land_partition
from airflow_provider_coordination.spark.kinesis.streams import Streams
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery
from tests.support.change_history import ChangeHistory
from tests.support.dynamodb_streams import DynamoDbStreams, InProcessDynamoDb, client_of, strings
from tests.support.history import STREAM

NO_SPARK: Any = SimpleNamespace(context=None, session=None, slots=None, is_shared=False)
REGION = AwsSettings(region="eu-west-1")


def merged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a sink holds that merges rows in this order, as `merge_on`, `order_by` and `op` say.

    It remembers the order of deleted keys as well.
    """
    known: dict[str, tuple[str, Any]] = {}
    for row in rows:
        if row["keys"] not in known or known[row["keys"]][0] < row["change_order"]:
            image = None if row["operation"] == "REMOVE" else json.loads(row["new_image"])
            known[row["keys"]] = (row["change_order"], image)
    return {json.loads(key)["id"]: image for key, (_, image) in known.items() if image is not None}


def plain(service: DynamoDbStreams, table: str) -> dict[str, Any]:
    """Return the items of a table whose attributes are strings."""
    items = ({name: held["S"] for name, held in item.items()} for item in service.items[table].values())
    return {item["id"]: item for item in items}


def land_items(spark: object, plans: Sequence[Any], reader: Any, options: Any, *_: object, clock: Any) -> list[Any]:
    return [land_partition(reader, options, plan, row_group_bytes=1, clock=clock) for plan in plans]


class FollowedTable(ChangeHistory):
    """A table whose items change while a fleet reads them, and follows its stream."""

    segments = 3
    page_items = 2

    def __init__(self, folder: Path, shards: int = 2, *, on_data_loss: str = "fail", **settings: Any) -> None:
        super().__init__(folder, shards, initial_position=LATEST, on_data_loss=on_data_loss, **settings)
        self.table = DynamoDBTable(STREAM, segments=self.segments, aws=REGION, follow=True)
        self.names = [f"k{number}" for number in range(12)]
        for number in range(8):
            self.put(number)

    def connect(self, shards: int) -> Any:
        self.service = DynamoDbStreams(self.clock)
        self.service.page_items = self.page_items
        self.service.create_table(STREAM, shards=shards)
        return client_of(self.service, "NEW_IMAGE")

    def connected(self, name: str) -> Any:
        """Return a client of the service, as boto3 makes it."""
        return InProcessDynamoDb(self.service, name)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Let the calls about the table reach the service."""
        with patch.object(calls, "aws_client", lambda settings, name: self.connected(name)):
            yield

    def put(self, number: int) -> None:
        """Change an item, or create it."""
        self.clock.advance(0.01)
        event = str(len(self.sent))
        self.service.put(STREAM, strings(id=self.names[number % len(self.names)], event=event))
        self.sent.append(event)

    def remove(self, number: int) -> None:
        """Delete an item, if there is one."""
        if names := sorted(self.service.items[STREAM]):
            self.clock.advance(0.01)
            self.service.remove(STREAM, json.loads(names[number % len(names)]))

    def send(self, count: int, keys: int = 5) -> None:
        for number in range(count):
            self.put(number * 7 + len(self.sent))

    def sync_of(self, coordinator: SourceCoordinator) -> ShardSync:
        return ShardSync(
            self.client,
            coordinator,
            initial_position=self.initial_position,
            on_data_loss=self.on_data_loss,
            history=partial(history_pages, self.table, coordinator),
            sleep=self.clock.sleep,
        )

    def sync(self, *, forced: bool = True) -> Any:
        with self.reached():
            return super().sync(forced=forced)

    def delivery(self) -> Delivery:
        return ParquetLandedDelivery(str(self.folder))

    def reading(self, reads: Any, streams: Streams) -> Any:
        return partial(FollowedReading, NO_SPARK, self.table.changes, streams, self.format)

    @contextmanager
    def without_spark(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self.reached())
            stack.enter_context(patch.object(item_reading, "land_items", partial(land_items, clock=self.clock)))
            stack.enter_context(super().without_spark())
            yield

    # What there is to see

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The delivered rows, in no order."""
        files = [path for path in self.folder.glob("*.parquet") if not path.name.startswith(("_", "."))]
        return [row for path in sorted(files) for row in pq.read_table(path).to_pylist()]

    @property
    def items(self) -> dict[str, Any]:
        """The items of the table now."""
        return plain(self.service, STREAM)

    def parts_of_history(self) -> list[Partition]:
        return [p for p in self.look.view.partitions() if p.progress["kind"] == "dynamodb"]
