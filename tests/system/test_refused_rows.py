"""A Spark job writes to a table with a constraint: the rows that it refuses are dead letters, and the rest arrives."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.support.job_settings import parquet
from tests.support.spark_job import Job, MakePipeline, Pipeline
from tests.support.sql_tables import SqlTarget

SCHEMA = "id STRING NOT NULL, amount INT"
CHECK = "amount_is_not_negative"


class Orders:
    """Orders that go to a table of PostgreSQL, which takes no negative amount, and to a dataset, which takes all."""

    def __init__(self, pipeline: Pipeline, database: str, folder: Path) -> None:
        self._pipeline, self._folder = pipeline, folder
        self._table = SqlTarget(database, folder / "staging")
        self._table.run(
            f"CREATE TABLE {self._table.settings.table} (id TEXT, amount INT CONSTRAINT {CHECK} CHECK (amount >= 0))"
        )
        pipeline.sync()

    def ingest(self, **amounts: int) -> Job:
        """Send orders, and run a job whose sinks may refuse half of a batch; return the job once it has ended."""
        for name, amount in amounts.items():
            data = json.dumps({"id": name, "amount": amount}).encode()
            self._pipeline.client.put_record(StreamName=self._pipeline.stream, PartitionKey=name, Data=data)
        return self._pipeline.run(
            writes=(self._table.sink_settings(add_columns=True), parquet(self._pipeline.output, "copy")),
            schema=SCHEMA,
            dead_letter_path=str(self._folder / "dead"),
            max_refused_share=0.5,
        )

    @property
    def in_table(self) -> list[tuple[str, int]]:
        return [(name, amount) for name, amount in self._table.rows("id, amount")]

    @property
    def in_copy(self) -> list[str]:
        return sorted(ds.dataset(self._pipeline.output).to_table(columns=["id"])["id"].to_pylist())

    @property
    def letters(self) -> list[dict[str, str]]:
        found = ds.dataset(self._folder / "dead").to_table().sort_by("row")
        return list(found.select(["sink", "stage", "error", "row", "data"]).to_pylist())


@pytest.fixture
def orders(make_pipeline: MakePipeline, postgres_url: str, tmp_path: Path) -> Orders:
    return Orders(make_pipeline(1), postgres_url, tmp_path)


def test_refused_rows_are_dead_letters_and_others_are_delivered(orders: Orders) -> None:
    job = orders.ingest(a=1, b=-2, c=3, d=-4, e=5)

    assert job.process.returncode == 0, job.output
    assert orders.in_table == [("a", 1), ("c", 3), ("e", 5)] and orders.in_copy == ["a", "b", "c", "d", "e"]
    summary = job.summary
    assert (summary["refused_by_sink"], summary["dead_letters"]) == ({"main": 2}, 2)
    assert summary["records_by_sink"] == {"main": 3, "copy": 5, "dead_letter": 2}
    assert [(each["sink"], each["stage"], json.loads(each["row"])["id"]) for each in orders.letters] == [
        ("main", "sink", "b"), ("main", "sink", "d"),
    ]  # fmt: skip
    assert all(CHECK in each["error"] and json.loads(each["data"])["amount"] < 0 for each in orders.letters)

    again = orders.ingest(f=-1, g=-1, h=-1, i=1)

    assert len(orders.in_table) == 3 and len(orders.letters) == 2, "above the share, the batch waits"
    [reason] = again.summary["failed"].values()
    assert "sink 'main' refuses 3 or more of 4 rows, which is more than 'max_refused_share' = 0.5" in str(reason)


def test_landed_rows_that_a_database_refuses_are_dead_letters(
    make_pipeline: MakePipeline, postgres_url: str, tmp_path: Path
) -> None:
    pipeline, table = make_pipeline(1), SqlTarget(postgres_url, tmp_path / "staging")
    table.run(
        f"CREATE TABLE {table.settings.table} (partition_key TEXT CONSTRAINT {CHECK} CHECK (partition_key <> 'b'))"
    )
    pipeline.sync()
    for name in ("a", "b", "c"):
        pipeline.client.put_record(StreamName=pipeline.stream, PartitionKey=name, Data=name.encode())
    job = pipeline.run(
        writes=(table.sink_settings(add_columns=True),),
        dead_letter_path=str(tmp_path / "dead"),
        max_refused_share=0.5,
    )
    assert job.process.returncode == 0, job.output
    assert table.rows("partition_key") == [("a",), ("c",)]
    [letter] = ds.dataset(tmp_path / "dead").to_table().to_pylist()
    assert (letter["sink"], letter["stage"], letter["data"]) == ("main", "sink", b"b") and CHECK in letter["error"]
    assert job.summary["records_by_sink"] == {"main": 2, "dead_letter": 1}
