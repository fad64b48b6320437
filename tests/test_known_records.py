"""Known records are read from pages unchanged, and the check of a dataset finds every fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.spark.kinesis import landing
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow
from tests.support.endless_kinesis import PAGE_RECORDS, EndlessKinesis
from tests.support.known_dataset import KnownDataset
from tests.support.known_records import Run, WrongRecordsError, runs_of, sequence_number
from tests.support.read_plans import read_plans

SHARDS = 2
HEADS = [PAGE_RECORDS - 1] * SHARDS

Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[LandedShardRow], int]:
    """The landed rows of the first page of each shard, and the start time of the records."""
    with EndlessKinesis(SHARDS) as server:
        options = ShardLandingOptions(
            kinesis=server.settings,
            root=str(tmp_path_factory.mktemp("landed")),
            seconds=60,
            max_bytes=1,
            slot_memory_bytes=2**29,
        )
        return landing._land_slot(options, read_plans(SHARDS)), server.began_at


@pytest.fixture
def rows(landed: tuple[list[LandedShardRow], int]) -> pa.Table:
    """The records of both shards."""
    return pa.concat_tables([pq.read_table(row.file) for row in landed[0]])


@pytest.fixture
def dataset(tmp_path: Path, landed: tuple[list[LandedShardRow], int]) -> KnownDataset:
    return KnownDataset(tmp_path, "s", landed[1])


def removed(dataset: KnownDataset, folder: Path, *files: pa.Table) -> None:
    """Add these files to a dataset, one after the other, and remove them."""
    for number, file in enumerate(files):
        pq.write_table(file, folder / f"{number}.parquet")
        dataset.remove(dict(enumerate(HEADS)), time.time_ns() + 10**9)


def test_server_sends_known_records(landed: tuple[list[LandedShardRow], int]) -> None:
    found, began_at = landed
    assert [row.end for row in found] == [sequence_number(head) for head in HEADS]
    for shard, row in enumerate(found):
        assert runs_of(pq.read_table(row.file), "s", began_at) == [Run(row.batch_id, shard, 0, HEADS[shard])]


def test_reading_resumes_behind_any_record_and_ends_as_given() -> None:
    with EndlessKinesis(1) as server:
        server.end(4)
        client = kinesis_client(server.settings)
        for kind, first in (("AFTER_SEQUENCE_NUMBER", 4), ("AT_SEQUENCE_NUMBER", 3)):
            iterator = client.get_shard_iterator(
                StreamName="s",
                ShardId="shardId-000000000000",
                ShardIteratorType=kind,
                StartingSequenceNumber=sequence_number(3),
            )["ShardIterator"]
            page = client.get_records(ShardIterator=iterator)
            assert [record["SequenceNumber"] for record in page["Records"]] == [
                sequence_number(number) for number in range(first, 5)
            ]
            assert page["MillisBehindLatest"] == 0
            assert client.get_records(ShardIterator=page["NextShardIterator"])["Records"] == []


def test_complete_ordered_dataset_passes(dataset: KnownDataset, tmp_path: Path, rows: pa.Table) -> None:
    removed(dataset, tmp_path, rows)
    dataset.check(HEADS)
    assert list(tmp_path.iterdir()) == []


def test_undelivered_records_stay(dataset: KnownDataset, tmp_path: Path, rows: pa.Table) -> None:
    pq.write_table(rows, tmp_path / "0.parquet")
    dataset.remove({0: HEADS[0], 1: HEADS[1] - 1}, time.time_ns() + 10**9)
    dataset.remove(dict(enumerate(HEADS)), time.time_ns() - 10**12)
    with pytest.raises(WrongRecordsError, match=r"left: \['0.parquet'\]"):
        dataset.check(HEADS)


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        (lambda rows: [rows.slice(10)], "shard 0: 0 to 9 are lost"),
        (lambda rows: [rows.slice(0, len(rows) - 1)], "shard 1: it ends with 1998, and not with 1999"),
        (lambda rows: [rows.slice(0, 5), rows.slice(6)], "shard 0: 5 to 5 are lost"),
        (lambda rows: [rows, rows.slice(7, 2)], "shard 0: 7 to 8 are doubled"),
        (lambda rows: [rows.slice(8), rows.slice(0, 8)], "shard 0: its batches became visible in another order"),
    ],
    ids=["lost at the beginning", "lost at the end", "lost in between", "doubled", "out of order"],
)
def test_lost_doubled_and_misordered_records_are_found(
    dataset: KnownDataset, tmp_path: Path, rows: pa.Table, files: Callable[[pa.Table], list[pa.Table]], fault: str
) -> None:
    removed(dataset, tmp_path, *files(rows))
    with pytest.raises(WrongRecordsError, match=fault):
        dataset.check(HEADS)


def swapped(rows: pa.Table) -> pa.Table:
    """Return rows with the third and fourth exchanged."""
    return rows.take([0, 1, 3, 2, *range(4, len(rows))])


def with_data_of_another(rows: pa.Table) -> pa.Table:
    """Return rows, each with the data of the next one."""
    data = rows.column("data").combine_chunks()
    return rows.set_column(
        rows.schema.get_field_index("data"), rows.schema.field("data"), pa.concat_arrays([data[1:], data[:1]])
    )


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (swapped, "row 2 of 2000 .*: sequence_number is .*3, and not .*2"),
        (with_data_of_another, "row 0 of 2000 .*: data is "),
        (lambda rows: pa.concat_tables([rows.slice(0, 9), rows.slice(10)]), "row 9 of 1999 .*: sequence_number"),
        (lambda rows: pa.concat_tables([rows.slice(0, 9), rows.slice(8)]), "row 9 of 2001 .*: sequence_number"),
    ],
    ids=["out of order", "other data", "one left out", "one twice"],
)
def test_faults_within_a_batch_are_found(
    dataset: KnownDataset, tmp_path: Path, rows: pa.Table, change: Change, fault: str
) -> None:
    with pytest.raises(WrongRecordsError, match=fault):
        removed(dataset, tmp_path, change(rows))
