"""Datasets in Hive folders: the folders, and each batch once whatever fails."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.dataset_compaction import dataset_files, maintain_dataset
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.partitioned_dataset import hive_folder, split_by_partition
from airflow_provider_coordination.spark.sinks import Maintenance, make_sinks, owed
from airflow_provider_coordination.spark.writes import ParquetDataset
from tests.support.depth import each_or_every
from tests.support.sinks import SINKS, SinkTarget, an_attempt, under_next_lease
from tests.support.striking import STRIKES, calls_of, strike_at

REJECTED = {"a-1": [7, 8], "b-1": [7]}
"""The rows of a delivery that was rejected."""
BEFORE = {"a-1": [1, 2], "b-1": [2]}
"""The rows of the job that is struck."""
AFTER = {"a-1": [2, 3, 4], "b-1": [5]}
"""The rows of its successor, most of them in other folders."""


class StruckDelivery:
    """The same delivery by two owners; see `StruckWork`.

    :param folder: of the dataset.
    :param rejected: whether the batches were in before, and were rejected.
    """

    def __init__(self, folder: Path, *, rejected: bool) -> None:
        self.target = SinkTarget(SINKS["parquet, partitioned"], folder)  # type: ignore[arg-type]
        self.attempts = [an_attempt(batch_id) for batch_id in BEFORE]
        if rejected:
            self.target.deliver(REJECTED, self.attempts)
            self.attempts = [under_next_lease(attempt, rejected=True) for attempt in self.attempts]

    def by_victim(self) -> None:
        sink = self.target.sink()
        left = owed(sink, self.attempts)
        if left:
            self.target.deliver(BEFORE, left, sink)

    def by_successor(self) -> None:
        sink, again = self.target.sink(), [under_next_lease(attempt) for attempt in self.attempts]
        sink.sweep({attempt.folder: attempt.fencing_token for attempt in again})
        if left := owed(sink, again):
            self.target.deliver(AFTER, left, sink)


@pytest.mark.deep
@pytest.mark.parametrize("rejected", [False, True], ids=["first delivery", "after a rejection"])
@pytest.mark.parametrize("object_store", ["", "s3"], ids=["disk", "S3"])
def test_failure_at_any_call_stores_each_batch_once(tmp_path: Path, object_store: str, rejected: bool) -> None:
    number_of_calls = len(calls_of(StruckDelivery(tmp_path / "counted", rejected=rejected), object_store))
    assert number_of_calls > 40
    for number, strike in enumerate(STRIKES):
        for point in each_or_every(40, number_of_calls, object_store, rejected, strike):
            story = StruckDelivery(tmp_path / f"{number}-{point}", rejected=rejected)
            struck = strike_at(point, strike, story, object_store, may_end_before=True)
            seen = story.target.visible
            assert {batch_id: seen.get(batch_id) in (BEFORE[batch_id], AFTER[batch_id]) for batch_id in BEFORE} == {
                "a-1": True, "b-1": True
            }, (struck, seen)  # fmt: skip
            story.by_successor()
            assert story.target.visible == seen, struck


def test_compaction_merges_finished_batches_of_each_folder(tmp_path: Path) -> None:
    story = StruckDelivery(tmp_path / "lake", rejected=False)
    story.by_victim()
    unfinished = next((tmp_path / "lake" / "_batches").glob("b-1.*.done"))
    unfinished.unlink()
    story.target.deliver({"c-1": [2], "d-1": [2]}, [an_attempt("c-1"), an_attempt("d-1")])
    seen = story.target.visible

    for hours in (2, 4, 6):
        wanted, now = Maintenance(retention=timedelta(hours=1)), datetime.now(UTC) + timedelta(hours=hours)
        maintain_dataset(
            str(story.target.folder),
            wanted,
            left_out=story.target.sink()._unfinished,
            now=now,  # type: ignore[attr-defined]
        )
        rows = [len(pq.ParquetFile(file).read()) for file in dataset_files(str(story.target.folder))]
        assert sum(rows) == 5 and story.target.visible == seen

    assert sorted(file.name[:4] for file in (tmp_path / "lake" / "n=2").iterdir()) == ["b-1-", "comp"]
    story.by_successor()
    assert story.target.visible == {**seen, "b-1": AFTER["b-1"]}


def test_folders_of_values_are_those_of_hive() -> None:
    rows = pa.table({"day": ["a/b", None, "é x", "a/b"], "is": [True, False, True, True], "n": [1, 2, 3, 4]})

    split = {"/".join(folders): part.to_pydict() for folders, part in split_by_partition(rows, ("day", "is"))}

    assert split == {
        "day=a%2Fb/is=true": {"n": [1, 4]},
        "day=__HIVE_DEFAULT_PARTITION__/is=false": {"n": [2]},
        "day=é x/is=true": {"n": [3]},
    }


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__", "x" * 300])
def test_value_that_is_no_folder_is_refused_by_column(value: str) -> None:
    with pytest.raises(DeliveryError, match="column 'day' partitions the dataset, and has"):
        hive_folder("day", value)


@pytest.mark.parametrize("kind", [pa.float64(), pa.binary(), pa.list_(pa.int64())])
def test_column_without_exact_text_does_not_partition(kind: pa.DataType) -> None:
    with pytest.raises(DeliveryError, match="column 'x' partitions the dataset, and is"):
        list(split_by_partition(pa.table({"x": pa.nulls(1, kind)}), ("x",)))


def test_dataset_keeps_its_partitioning(tmp_path: Path) -> None:
    def sink(**settings: object) -> None:
        dataset = ParquetDataset(str(tmp_path), **settings)  # type: ignore[arg-type]
        [made] = make_sinks([dataset.connect(None)])  # type: ignore[arg-type]
        made.check()

    sink(partition_by=["day"])
    sink(partition_by=["day"], compression="snappy")
    with pytest.raises(ConfigurationError, match=r"'partition_by' is \['hour'\], but the dataset .* by \['day'\]"):
        sink(partition_by=["hour"])
    with pytest.raises(ConfigurationError, match=r"a dataset with 'partition_by' = \['day'\]"):
        sink()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"compression": "brotli"}, "'compression' must be one of zstd, snappy"),
        ({"compression": "snappy", "compression_level": 3}, "'compression_level' needs the codec"),
        ({"compression": "gzip", "compression_level": 10}, "'compression_level' must be at most 9"),
        ({"partition_by": ["_day"]}, "'partition_by' must name columns; readers skip"),
    ],
)
def test_settings_of_files_are_checked(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        ParquetDataset("/lake", **settings).resolved().check()  # type: ignore[arg-type]


def test_files_have_the_chosen_compression(tmp_path: Path) -> None:
    target = StruckDelivery(tmp_path / "lake", rejected=True).target
    file = next(target.folder.rglob("n=*/*.parquet"))
    assert pq.read_metadata(file).row_group(0).column(0).compression == "GZIP"
    assert pq.ParquetFile(file).schema.names == ["_batch_id"]
