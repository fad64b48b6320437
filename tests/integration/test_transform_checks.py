"""Spark checks transforms and the columns that sinks name, with a session in this process."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.delivery import (
    MissingColumnError,
    Transform,
    TransformError,
)
from airflow_provider_coordination.spark.frame_landing import landed_columns
from airflow_provider_coordination.spark.kinesis.shard_format import SHARD_RECORDS
from airflow_provider_coordination.spark.sinks.delta.sink import DeltaSink
from airflow_provider_coordination.spark.writes import DeltaTable
from tests.support.landed_batches import PAYLOAD, LandedBatches, land_items, of_items

pytestmark = pytest.mark.share(0.3)


def nothing_returned(records: DataFrame) -> None:
    records.count()


def no_such_column(records: DataFrame) -> DataFrame:
    return records.select("colour")


def no_such_module(records: DataFrame) -> DataFrame:
    import no_such_module

    return no_such_module.of(records)  # type: ignore[no-any-return]


def no_such_attribute(records: DataFrame) -> DataFrame:
    return records.select(records.colour)


WRONG_TRANSFORMS: dict[str, tuple[Any, str]] = {
    "nothing": (nothing_returned, "must return a Spark DataFrame that is not streaming; it returned builtins.NoneType"),
    "a list": (lambda records: [records], "it returned builtins.list"),
    "pandas": (lambda records: records.toPandas(), "it returned pandas.core.frame.DataFrame"),
    "no argument": (lambda: None, "cannot be called with one argument, the records: too many positional arguments"),
    "two arguments": (lambda records, more: records, "missing a required argument: 'more'"),
    "module": (no_such_module, "fails on any records: ModuleNotFoundError: No module named 'no_such_module'"),
}


@pytest.mark.parametrize("name", sorted(WRONG_TRANSFORMS))
def test_transform_failing_on_any_records_is_named_before_batches(batches: LandedBatches, name: str) -> None:
    transform, message = WRONG_TRANSFORMS[name]
    with pytest.raises(TransformError, match=message):
        batches.delivery(transform=transform).transformation.check(SHARD_RECORDS.columns)


@pytest.mark.parametrize("transform", [no_such_column, no_such_attribute])
def test_missing_known_column_is_named_before_reading(batches: LandedBatches, transform: Transform) -> None:
    """The columns are known of streams, and of items that a reader describes before it reads them."""
    of_a_table = landed_columns(pa.schema([pa.field("amount", pa.uint8()), pa.field("name", pa.large_string())]))
    message = f"transform '{transform.__name__}' names a column that the records do not have: .*`?colour`?.* columns "
    with pytest.raises(ConfigurationError, match=message + "are stream, shard_id, .*; correct it"):
        batches.delivery(transform=transform).transformation.check(SHARD_RECORDS.columns)
    with pytest.raises(ConfigurationError, match=message + "are amount, name, _origin, _row, _batch_id; correct it"):
        of_items(batches, transform=transform).transformation.check(of_a_table)
    right = of_items(batches, where="amount > 3", transform=lambda each: each.where("name != ''"))
    right.transformation.check(of_a_table)
    with pytest.raises(ConfigurationError, match="field 'schema': 'schema' parses the column 'data', which must exist"):
        of_items(batches, schema=PAYLOAD).transformation.check(of_a_table)


@pytest.mark.parametrize("transform", [no_such_column, no_such_attribute])
def test_missing_column_of_a_batch_is_named(batches: LandedBatches, transform: Transform) -> None:
    land_items(batches, a=[1])
    with pytest.raises(MissingColumnError, match=r"colour.*; their columns are a, _origin, _row, _batch_id"):
        batches.deliver(of_items(batches, transform=transform))
    with pytest.raises(MissingColumnError, match=r"'where' .*; their columns are a, _origin, _row, _batch_id"):
        batches.deliver(of_items(batches, where="colour = 'red'"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"merge_on": ("id", "amout")}, "'merge_on' names column 'amout', .*; did you mean 'amount'?"),
        ({"merge_on": ("id",), "order_by": "at"}, "'order_by' names column 'at', .*; did you mean 'data'?"),
        ({"partition_by": ("xyz",)}, "'partition_by' names column 'xyz', .*; name one of them, or let the transform"),
    ],
)
def test_missing_column_of_a_sink_is_named_before_reading(
    batches: LandedBatches, fields: dict[str, Any], message: str
) -> None:
    table = DeltaSink(name="table", path=str(batches.folder / "table"), settings=DeltaTable("", **fields))
    with pytest.raises(ConfigurationError, match=f"field 'writes', sink 'table': {message}"):
        batches.delivery(table, schema=PAYLOAD).transformation.check(SHARD_RECORDS.columns)
    land_items(batches, id=["a"], amount=[1.0], data=[b""])
    with pytest.raises(MissingColumnError, match=f"{message}"):
        batches.deliver(of_items(batches, table))


def test_check_accepts_transforms_that_inspect_records(batches: LandedBatches) -> None:
    def by_first(records: DataFrame) -> DataFrame:
        return records.sparkSession.read.json(records.rdd.map(lambda row: bytes(row.data).decode())).select("id")

    batches.delivery(transform=by_first).transformation.check(SHARD_RECORDS.columns)


def test_wrong_transform_of_items_blames_no_batch(batches: LandedBatches) -> None:
    land_items(batches, a=[1])
    with pytest.raises(TransformError, match="must return a Spark DataFrame"):
        batches.deliver(of_items(batches, transform=nothing_returned))
