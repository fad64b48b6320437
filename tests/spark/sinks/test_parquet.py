"""The Parquet sink beyond the contract: staging folders, manifests, one file per batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.staging import MANIFEST
from tests.support.sinks import BatchRows, an_attempt, under_next_lease

BATCH = "shard-1-abc"
FIRST = an_attempt(BATCH)
SECOND = under_next_lease(FIRST, rejected=True)


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink(name="main", path=str(tmp_path / "out"))


def rows(*values: int) -> BatchRows:
    return BatchRows({BATCH: values})


def staged(sink: ParquetSink, attempt: Attempt) -> Path:
    return Path(sink.staging(attempt))


def published(sink: ParquetSink) -> list[int] | None:
    file = Path(sink.path, "shard-1-abc.parquet")
    return pq.read_table(file)["n"].to_pylist() if file.exists() else None


def deliver(sink: ParquetSink, attempt: Attempt, *values: int) -> None:
    sink.prepare([attempt], rows(*values))
    sink.commit([attempt])


def test_batch_is_one_file_of_its_name(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    assert published(sink) == [1]


def test_batch_without_rows_has_no_file(sink: ParquetSink) -> None:
    deliver(sink, FIRST)
    assert published(sink) is None


def test_rejected_delivery_without_rows_leaves_an_empty_file(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    deliver(sink, SECOND)
    assert published(sink) == []


def test_late_commit_without_rows_leaves_the_next_file(sink: ParquetSink) -> None:
    """The next owner sweeps and delivers after this commit has read its manifest."""
    sink.prepare([SECOND], rows())
    deliver(sink, under_next_lease(SECOND), 1)
    sink.commit([SECOND])
    assert published(sink) == [1]


def test_staged_files_without_a_manifest_are_never_published(sink: ParquetSink) -> None:
    sink.prepare([FIRST], rows(1))
    (staged(sink, FIRST) / MANIFEST).unlink()
    with pytest.raises(DeliveryError, match="is gone or incomplete"):
        sink.commit([FIRST])
    assert published(sink) is None


def test_emptied_staging_folder_is_no_empty_batch(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    sink.prepare([SECOND], rows(2))
    for file in staged(sink, SECOND).iterdir():
        file.unlink()
    with pytest.raises(DeliveryError, match="is gone or incomplete"):
        sink.commit([SECOND])
    assert published(sink) == [1]


def test_missing_staged_file_publishes_nothing(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    sink.prepare([SECOND], rows(2))
    (staged(sink, SECOND) / "part-0.parquet").unlink()
    with pytest.raises(MissingFileError, match=r"part-0\.parquet is gone"):
        sink.commit([SECOND])
    assert published(sink) == [1]


def test_truncated_staged_file_publishes_nothing(sink: ParquetSink) -> None:
    sink.prepare([FIRST], rows(1))
    file = staged(sink, FIRST) / "part-0.parquet"
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(MissingFileError, match=r"has 50 bytes instead of the \d+ that were written"):
        sink.commit([FIRST])
    assert published(sink) is None


def test_manifest_of_another_delivery_publishes_nothing(sink: ParquetSink) -> None:
    sink.prepare([FIRST], rows(1))
    staged(sink, SECOND).mkdir(parents=True)
    (staged(sink, FIRST) / MANIFEST).rename(staged(sink, SECOND) / MANIFEST)
    with pytest.raises(DeliveryError, match="belongs to another delivery"):
        sink.commit([SECOND])


def test_discarding_leaves_only_the_source_folder(sink: ParquetSink) -> None:
    deliver(sink, FIRST, 1)
    sink.discard([FIRST])
    left = sorted(str(path.relative_to(sink.path)) for path in Path(sink.path).rglob("*"))
    assert left[1].startswith("_ledger/")
    assert [*left[:1], *left[2:]] == ["_ledger", "_staging", "_staging/clicks", "shard-1-abc.parquet"]


def test_foreign_files_beside_staging_and_datasets_are_kept(sink: ParquetSink) -> None:
    foreign = [Path(sink.path, name) for name in ("notes.txt", "_staging/notes.txt", f"_staging/{FIRST.folder}/old/x")]
    for file in foreign:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("somebody's")
    deliver(sink, FIRST, 1)
    sink.discard([FIRST])
    sink.sweep({FIRST.folder: 99})
    assert published(sink) == [1] and all(file.exists() for file in foreign)


@pytest.mark.parametrize(
    ("name", "field"),
    [("main", "ParquetDataset 'main': field 'path'"), ("dead_letter", "BadRecordSettings: field 'dead_letter_path'")],
)
def test_unwritable_path_is_named_by_its_field(name: str, field: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{field} is '/proc/lake', which cannot be written: "):
        ParquetSink(name=name, path="/proc/lake").check()
