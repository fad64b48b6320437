"""Delivery of transformed batches into several sinks, many batches at once; by Arrow instead of Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark.delivery import Attempt, Prepared
from airflow_provider_coordination.spark.kinesis.shard_format import RECORD_SCHEMA, SHARD_RECORDS
from airflow_provider_coordination.spark.landed_identity import file_name
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from tests.support.dag_versions import TWO, ArrowTransformation
from tests.support.sinks import an_attempt, under_next_lease


@pytest.fixture
def delivery(tmp_path: Path) -> TransformedDelivery:
    return a_delivery(tmp_path)


def a_delivery(folder: Path, *, is_final: bool = True) -> TransformedDelivery:
    sinks = [ParquetSink(name=name, path=str(folder / name)) for name in TWO.all_sinks]
    return TransformedDelivery(ArrowTransformation(TWO, SHARD_RECORDS), sinks, source="clicks", is_final=is_final)


@pytest.fixture
def attempts(tmp_path: Path) -> list[Attempt]:
    return [landed(tmp_path, batch_id, *events) for batch_id, events in EVENTS.items()]


NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = {"a-1": ("a/1", "bad/2"), "b-1": ("b/3",), "c-1": ("c/4", "c/5")}


def landed(folder: Path, batch_id: str, *events: str) -> Attempt:
    rows = [
        {
            "stream": "clicks", "shard_id": "s", "sequence_number": event, "sub_sequence_number": 0,
            "partition_key": "k", "approximate_arrival_timestamp": NOW, "data": event.encode(), "_batch_id": batch_id,
        }
        for event in events
    ]  # fmt: skip
    file = str(folder / "_landing" / batch_id / file_name("5", 1))
    size = write_table(pa.Table.from_pylist(rows, RECORD_SCHEMA), file)
    return an_attempt(batch_id, file=file, file_bytes=size, records=len(events))


def prepared_by(delivery: TransformedDelivery, attempts: list[Attempt]) -> tuple[list[Attempt], dict[str, Prepared]]:
    """Return the attempts with the files that they share, and what was made of each batch."""
    prepared: dict[str, Prepared] = {}
    for batch_id, result in delivery.prepare(attempts, delivery.sinks).items():
        assert isinstance(result, Prepared), result
        prepared[batch_id] = result
    return [replace(attempt, shared_file=prepared[attempt.batch_id].shared_file) for attempt in attempts], prepared


def rows(folder: Path) -> Counter[str]:
    tables = [pq.read_table(file, columns=["data"]) for file in folder.glob("*.parquet")]
    return Counter(data.decode() for table in tables for data in table["data"].to_pylist())


def test_many_batches_are_prepared_and_committed_at_once(
    delivery: TransformedDelivery, attempts: list[Attempt], tmp_path: Path
) -> None:
    attempts, prepared = prepared_by(delivery, attempts)
    assert {batch_id: dict(result.records) for batch_id, result in prepared.items()} == {
        "a-1": {"dead_letter": 1, "main": 1, "copy": 0},
        "b-1": {"dead_letter": 0, "main": 1, "copy": 0},
        "c-1": {"dead_letter": 0, "main": 2, "copy": 1},
    }
    assert not rows(tmp_path / "main")
    for sink in delivery.sinks:
        delivery.commit(sink, attempts)
    delivery.discard(attempts)
    assert rows(tmp_path / "main") == Counter(["a/1", "b/3", "c/4", "c/5"])
    assert (rows(tmp_path / "copy"), rows(tmp_path / "dead_letter")) == (Counter(["c/4"]), Counter(["bad/2"]))
    assert [path for path in tmp_path.rglob("_staging/**/*") if path.is_file()] == []
    assert {len(list((tmp_path / name).glob("*.parquet"))) for name in delivery.sinks} == {1}, "they share a file"


def test_only_batches_missing_from_a_sink_are_made(
    delivery: TransformedDelivery, attempts: list[Attempt], tmp_path: Path
) -> None:
    first = attempts[1:2]
    delivery.prepare(first, delivery.sinks)
    delivery.commit("main", first)  # and dies
    again = [under_next_lease(attempt) for attempt in attempts]
    for attempt in again:
        delivery.sweep({attempt.folder: attempt.fencing_token})
    again, prepared = prepared_by(delivery, again)
    assert sorted(prepared["b-1"].records) == ["copy", "dead_letter"]
    for sink in delivery.sinks:
        delivery.commit(sink, again)
    assert rows(tmp_path / "main") == Counter(["a/1", "b/3", "c/4", "c/5"])


def test_previous_owner_is_refused_for_its_lost_partition_alone(attempts: list[Attempt], tmp_path: Path) -> None:
    delivery = a_delivery(tmp_path, is_final=False)
    delivery.prepare(attempts, delivery.sinks)
    delivery.sweep({attempts[0].folder: 2})
    with pytest.raises(CoordinationError, match=r"batch a-1: the staged data in .* is gone or incomplete"):
        delivery.commit("main", attempts)
    for attempt in attempts[1:]:
        delivery.commit("main", [attempt])
    assert rows(tmp_path / "main") == Counter(["b/3", "c/4", "c/5"])
