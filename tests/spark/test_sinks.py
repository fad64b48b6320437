from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, discard_staged, sweep_staged
from airflow_provider_coordination.spark.sinks import MANIFEST, ParquetSink
from airflow_provider_coordination.spark.storage import MissingFileError

FOLDER = "clicks/shard"
BATCH = LandedBatch(
    batch_id="shard-1-abc",
    start="TRIM_HORIZON",
    end="9",
    file="/landing/5.1.ab.parquet",
    file_bytes=100,
    records=1,
    bytes=1,
    is_last=False,
    read_until=None,
    fencing_token=1,
)
FIRST = Attempt(batch=BATCH, file=BATCH.file, folder=FOLDER, set_id="shard-1-abc.s1", fencing_token=1)
SECOND = replace(FIRST, batch=replace(BATCH, redeliver=True), set_id="shard-1-abc.s2", fencing_token=5)


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink(name="main", output=str(tmp_path / "out"))


def rows(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def staged(sink: ParquetSink, attempt: Attempt) -> Path:
    return Path(attempt.staging(sink.output))


def published(sink: ParquetSink) -> list[int] | None:
    file = Path(sink.output, "shard-1-abc.parquet")
    return pq.read_table(file)["n"].to_pylist() if file.exists() else None


def deliver(sink: ParquetSink, attempt: Attempt, *values: int) -> None:
    sink.stage_rows(attempt, rows(*values))
    sink.publish(attempt)


def test_a_staged_batch_is_published_as_one_file(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    assert published(sink) == [1]


def test_a_batch_without_rows_publishes_nothing(sink: ParquetSink) -> None:
    deliver(sink, FIRST)
    assert published(sink) is None


def test_what_is_staged_without_its_manifest_is_never_published(sink: ParquetSink) -> None:
    sink.stage_rows(FIRST, rows(1))
    (staged(sink, FIRST) / MANIFEST).unlink()
    with pytest.raises(DeliveryError, match="is gone or not whole"):
        sink.publish(FIRST)
    assert published(sink) is None


def test_a_staging_folder_that_somebody_emptied_is_not_taken_for_a_batch_without_rows(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    sink.stage_rows(SECOND, rows(2))
    for file in staged(sink, SECOND).iterdir():
        file.unlink()
    with pytest.raises(DeliveryError, match="is gone or not whole"):
        sink.publish(SECOND)
    assert published(sink) == [1]


def test_a_staged_file_that_is_gone_publishes_nothing(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    sink.stage_rows(SECOND, rows(2))
    (staged(sink, SECOND) / "part-0.parquet").unlink()
    with pytest.raises(MissingFileError, match=r"part-0\.parquet is gone"):
        sink.publish(SECOND)
    assert published(sink) == [1]


def test_a_staged_file_that_was_cut_in_half_publishes_nothing(sink: ParquetSink) -> None:
    sink.stage_rows(FIRST, rows(1))
    file = staged(sink, FIRST) / "part-0.parquet"
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(MissingFileError, match=r"has 50 bytes, and \d+ were written"):
        sink.publish(FIRST)
    assert published(sink) is None


def test_a_manifest_of_another_delivery_publishes_nothing(sink: ParquetSink) -> None:
    sink.stage_rows(FIRST, rows(1))
    staged(sink, SECOND).mkdir(parents=True)
    (staged(sink, FIRST) / MANIFEST).rename(staged(sink, SECOND) / MANIFEST)
    with pytest.raises(DeliveryError, match="holds another delivery"):
        sink.publish(SECOND)


def test_a_batch_that_was_published_is_not_published_again(sink: ParquetSink) -> None:
    assert sink.needs(BATCH)
    deliver(sink, FIRST, 1)
    assert not sink.needs(BATCH)
    deliver(sink, replace(FIRST, fencing_token=2), 2)
    assert published(sink) == [1]


def test_a_rejected_delivery_is_replaced(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    deliver(sink, SECOND, 2)
    assert published(sink) == [2]


def test_a_rejected_delivery_is_replaced_by_no_rows_if_none_are_left(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    deliver(sink, SECOND)
    assert published(sink) == []


def test_a_sweep_takes_what_former_owners_staged_and_their_right_to_publish_it(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    zombie = replace(SECOND, set_id="shard-1-abc.s0", fencing_token=4)
    sink.stage_rows(zombie, rows(0))
    sink.stage_rows(SECOND, rows(2))
    sweep_staged(sink.output, FOLDER, 5)
    sink.publish(SECOND)
    with pytest.raises(DeliveryError, match="is gone or not whole"):
        sink.publish(zombie)
    assert published(sink) == [2]


def test_what_is_discarded_leaves_nothing_but_the_sources_folder(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    discard_staged(sink.output, FIRST)
    left = sorted(str(path.relative_to(sink.output)) for path in Path(sink.output).rglob("*"))
    assert left == ["_staging", "_staging/clicks", "shard-1-abc.parquet"]
