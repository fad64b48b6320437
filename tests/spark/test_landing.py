"""Reading one shard into one file, without Spark: what a slot does for each of its shards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinesis.aggregation import aggregate
from airflow_provider_coordination.sources.kinesis.errors import KinesisUnavailableError, ShardNotFoundError
from airflow_provider_coordination.sources.kinesis.progress import ChildShard
from airflow_provider_coordination.sources.kinesis.reader import KinesisRecord, ShardPage
from airflow_provider_coordination.spark import landing
from airflow_provider_coordination.spark.landing import Landed, LandingOptions, ReadPlan, deal, land_shard, token_of
from tests.support.clock import ManualClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLAN = ReadPlan(
    source_identifier="clicks|PARTITION",
    partition_key="s:1:shardId-000000000000",
    fencing_token=7,
    stream="s",
    shard_id="shardId-000000000000",
    start="TRIM_HORIZON",
)


def options(root: Path, **changes: Any) -> LandingOptions:
    return LandingOptions(
        kinesis=AwsSettings(region="eu-west-1"),
        root=str(root),
        **{"seconds": 10.0, "max_bytes": 1000, "shards_per_slot": 2, **changes},
    )


def a_record(number: int, data: bytes = b"x", arrival: datetime = NOON) -> KinesisRecord:
    return KinesisRecord(str(number), "key", arrival, data)


def a_page(*records: KinesisRecord, behind: int | None = 0, end: bool = False, read_at: datetime = NOON) -> ShardPage:
    children = (ChildShard(shard_id="c", parent_shard_ids=("p",), starting_hash_key="0", ending_hash_key="1"),)
    return ShardPage(
        records=list(records),
        millis_behind_latest=behind,
        end_of_shard=end,
        children=children if end else (),
        read_at=read_at,
    )


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[ShardPage | Exception]:
    """What the shard gives, page by page; the edge to the network is the only thing replaced."""
    given: list[ShardPage | Exception] = []

    def read(*arguments: object, **options: object) -> Iterator[ShardPage]:
        for page in given:
            if isinstance(page, Exception):
                raise page
            yield page
        raise AssertionError("it read on although it should have stopped")

    monkeypatch.setattr(landing, "read_shard", read)
    return given


def rows(landed: Landed) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = pq.read_table(landed.file).to_pylist()
    return table


def test_records_land_in_one_file_with_the_documented_columns(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10, b"one"), a_record(11, b"two"), behind=5), a_page()]
    landed = land_shard(None, options(tmp_path), PLAN)
    assert (landed.start, landed.end, landed.records, landed.bytes) == ("TRIM_HORIZON", "11", 2, 6)
    assert rows(landed)[0] == {
        "stream": "s",
        "shard_id": "shardId-000000000000",
        "sequence_number": "10",
        "sub_sequence_number": 0,
        "partition_key": "key",
        "approximate_arrival_timestamp": NOON,
        "data": b"one",
        "_batch_id": landed.batch_id,
    }
    assert landed.is_batch and not landed.end_of_shard and landed.error is None


def test_aggregated_records_are_told_apart_by_their_sub_sequence_number(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10, aggregate([("a", b"1"), ("b", b"2")])), a_record(11, b"plain")), a_page()]
    found = rows(land_shard(None, options(tmp_path), PLAN))
    assert [(r["sequence_number"], r["sub_sequence_number"], r["partition_key"], r["data"]) for r in found] == [
        ("10", 0, "a", b"1"),
        ("10", 1, "b", b"2"),
        ("11", 0, "key", b"plain"),
    ]


def test_the_file_name_carries_range_start_and_fencing_token(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10)), a_page()]
    landed = land_shard(None, options(tmp_path), PLAN)
    assert Path(landed.file).name.startswith("TRIM_HORIZON.7.")
    assert token_of(landed.file) == 7


def test_a_second_attempt_writes_a_file_of_its_own_for_the_same_batch(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10)), a_page()]
    one, other = (land_shard(None, options(tmp_path), PLAN) for _ in range(2))
    assert one.file != other.file and one.batch_id == other.batch_id


def test_an_empty_page_far_behind_is_read_over(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(behind=60_000), a_page(a_record(10), behind=0), a_page()]
    assert land_shard(None, options(tmp_path), PLAN).records == 1


def test_a_shard_without_anything_new_gives_no_batch(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(read_at=NOON)]
    landed = land_shard(None, options(tmp_path), PLAN)
    assert not landed.is_batch and landed.file == ""
    assert landed.read_until == NOON
    assert list(tmp_path.iterdir()) == []


def test_reading_stops_once_the_bytes_are_enough_but_never_within_a_page(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10, b"x" * 600), a_record(11, b"x" * 600), behind=9)]
    landed = land_shard(None, options(tmp_path, max_bytes=1000), PLAN)
    assert (landed.records, landed.end) == (2, "11")
    assert landed.read_until == NOON


def test_reading_stops_when_its_time_is_over(tmp_path: Path, pages: list[Any]) -> None:
    clock = ManualClock()

    class Late(list[KinesisRecord]):
        def __iter__(self) -> Iterator[KinesisRecord]:
            clock.advance(11)
            return super().__iter__()

    late = a_page(a_record(10), behind=9)
    pages += [
        ShardPage(
            records=Late(late.records),
            millis_behind_latest=9,
            end_of_shard=False,
            children=(),
            read_at=NOON,
        )
    ]
    assert land_shard(None, options(tmp_path), PLAN, clock=clock).records == 1


def test_a_last_page_may_carry_records_and_the_end(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10), end=True)]
    landed = land_shard(None, options(tmp_path), PLAN)
    assert landed.end_of_shard and landed.records == 1
    assert [child.shard_id for child in landed.children] == ["c"]


def test_a_shard_that_ends_without_a_record_is_still_a_batch(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(end=True)]
    landed = land_shard(None, options(tmp_path), PLAN)
    assert landed.is_batch and landed.start == landed.end and landed.file == ""


@pytest.mark.parametrize(
    ("error", "passing"), [(KinesisUnavailableError("throttled"), True), (ShardNotFoundError("gone"), False)]
)
def test_an_error_is_told_in_the_manifest_and_nothing_else_holds(
    tmp_path: Path, pages: list[Any], error: Exception, passing: bool
) -> None:
    pages += [a_page(a_record(10), behind=9), error]
    landed = land_shard(None, options(tmp_path), PLAN)
    assert (landed.error, landed.passing, landed.is_batch) == (str(error), passing, False)


def test_a_place_that_cannot_be_written_is_told_in_the_manifest(tmp_path: Path, pages: list[Any]) -> None:
    (tmp_path / "file").write_text("")
    pages += [a_page(a_record(10)), a_page()]
    landed = land_shard(None, options(tmp_path / "file"), PLAN)
    assert landed.error is not None and "landing in" in landed.error


def test_a_manifest_row_survives_its_way_through_spark(tmp_path: Path, pages: list[Any]) -> None:
    pages += [a_page(a_record(10, arrival=NOON - timedelta(seconds=1)), end=True)]
    landed = land_shard(None, options(tmp_path), PLAN)
    assert read_settings(Landed, "row", json.loads(json.dumps(write_settings(landed)))) == landed


@pytest.mark.parametrize(("shards", "slots", "sizes"), [(5, 2, [3, 2]), (2, 8, [1, 1]), (1, 1, [1]), (6, 3, [2, 2, 2])])
def test_shards_are_dealt_evenly_and_no_slot_is_empty(shards: int, slots: int, sizes: Sequence[int]) -> None:
    dealt = deal([PLAN] * shards, slots)
    assert [len(slot) for slot in dealt] == sizes
