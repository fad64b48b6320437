from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sinks import SPARK_WROTE_ALL, ParquetSink

FOLDER = "clicks/shard"
BATCH = LandedBatch(
    batch_id="shard-1-abc",
    start="TRIM_HORIZON",
    end="9",
    file="/landing/5.1.ab.parquet",
    records=1,
    bytes=1,
    is_last=False,
    read_until=None,
    fencing_token=1,
)
REJECTED = replace(BATCH, redeliver=True)


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink(name="main", output=str(tmp_path / "out"))


def stage(sink: ParquetSink, *names: str, value: int = 1) -> Path:
    """Leave these files in the staging folder of the batch, as Spark does."""
    folder = Path(sink.staging(FOLDER, BATCH, 1))
    folder.mkdir(parents=True)
    for name in names:
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"n": [value]}), folder / name)
        else:
            (folder / name).touch()
    return folder


def published(sink: ParquetSink) -> list[int] | None:
    file = Path(sink.output, "shard-1-abc.parquet")
    return pq.read_table(file)["n"].to_pylist() if file.exists() else None


def test_a_staged_batch_is_published_as_one_file(sink: ParquetSink) -> None:
    folder = stage(sink, "part-0.parquet", SPARK_WROTE_ALL)
    sink.publish(FOLDER, BATCH, 1)
    assert published(sink) == [1] and not folder.exists()


def test_a_batch_without_rows_publishes_nothing(sink: ParquetSink) -> None:
    stage(sink, SPARK_WROTE_ALL)
    sink.publish(FOLDER, BATCH, 1)
    assert published(sink) is None


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["part-0.parquet"], "is gone or not whole"),
        ([], "is gone or not whole"),
        (["part-0.parquet", "part-1.parquet", SPARK_WROTE_ALL], "expected one staged file, found 2"),
    ],
)
def test_a_staged_batch_that_is_not_whole_is_never_published(sink: ParquetSink, names: list[str], message: str) -> None:
    stage(sink, *names)
    with pytest.raises(DeliveryError, match=message):
        sink.publish(FOLDER, BATCH, 1)
    assert published(sink) is None


def test_a_batch_that_was_published_is_not_published_again(sink: ParquetSink) -> None:
    stage(sink, "part-0.parquet", SPARK_WROTE_ALL)
    assert sink.needs(BATCH)
    sink.publish(FOLDER, BATCH, 1)
    assert not sink.needs(BATCH)
    sink.publish(FOLDER, BATCH, 1)
    assert published(sink) == [1]


def test_a_rejected_delivery_is_replaced(sink: ParquetSink) -> None:
    stage(sink, "part-0.parquet", SPARK_WROTE_ALL)
    sink.publish(FOLDER, BATCH, 1)
    assert sink.needs(REJECTED)
    stage(sink, "part-0.parquet", SPARK_WROTE_ALL, value=2)
    sink.publish(FOLDER, REJECTED, 1)
    assert published(sink) == [2]


def test_a_rejected_delivery_is_replaced_by_nothing_if_nothing_is_left(sink: ParquetSink) -> None:
    stage(sink, "part-0.parquet", SPARK_WROTE_ALL)
    sink.publish(FOLDER, BATCH, 1)
    stage(sink, SPARK_WROTE_ALL)
    sink.publish(FOLDER, REJECTED, 1)
    assert published(sink) is None


def test_what_a_former_owner_staged_is_swept(sink: ParquetSink) -> None:
    folder = stage(sink, "part-0.parquet")
    sink.sweep(FOLDER)
    assert not folder.exists()
