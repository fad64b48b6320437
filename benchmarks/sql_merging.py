"""The time of merging rows with random keys into a SQL table, by what decides between rows with the same key.

A table has many rows. Batches replace rows of random keys, and add rows with new keys. It is measured in PostgreSQL and
MariaDB on this machine: with `merge_on` alone, with `order_by`, and with `op`, where a third of the changes deletes.
The ways take turns, each on a table of its own. The time of a commit is measured, which reads the staged rows.

Usage: python -m benchmarks.sql_merging [--quick]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sinks import Rows
from airflow_provider_coordination.spark.sinks.sql import SqlSink
from airflow_provider_coordination.spark.storage import join
from airflow_provider_coordination.sql import POSTGRESQL
from tests.support.mariadb import MariaDb
from tests.support.servers import postgres_database, running_postgres
from tests.support.sinks import an_attempt
from tests.support.sql_tables import SqlTarget

WAYS: dict[str, dict[str, Any]] = {
    "merge_on": {},
    "order_by": {"order_by": "version"},
    "op": {"order_by": "version", "op": "op"},
}
"""The settings of a sink beside `merge_on`, by way."""
DELETED = 3
"""One change of this number deletes, where changes can."""
PAYLOAD_BYTES = 100


@dataclass(frozen=True)
class Size:
    """How much is measured.

    :param rows: the number of rows in the table.
    :param changes: the number of rows of a batch.
    :param repetitions: the number of batches of each way.
    """

    rows: int = 1_000_000
    changes: int = 100_000
    repetitions: int = 5


QUICK = Size(rows=100_000, changes=10_000, repetitions=3)


class Changes(Rows):
    """The rows of one batch; see `Rows`."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.schema = table.schema

    @override
    def count(self, batch_id: str) -> int:
        return int(self.table.num_rows)

    @override
    def write(self, batch_ids: Collection[str], folder: str) -> dict[str, int]:
        file = join(folder, "part-0.parquet")
        return {file: write_table(self.table, file)}


def changes_of(batch_id: str, keys: Sequence[int], version: int, *, deletes: bool) -> Changes:
    """Return a change of each key."""
    operations = ["REMOVE" if deletes and n % DELETED == 0 else "MODIFY" for n in range(len(keys))]
    return Changes(
        pa.table(
            {
                "id": pa.array(keys, pa.int64()),
                "version": pa.array([version] * len(keys), pa.int64()),
                "payload": [f"{version:>{PAYLOAD_BYTES}}"] * len(keys),
                "op": operations,
                "_batch_id": [batch_id] * len(keys),
            }
        )
    )


class MergedTable:
    """A table that batches are merged into in one way.

    :param url: the database's, as SQLAlchemy writes it.
    :param folder: where rows are staged.
    :param way: see `WAYS`.
    :param size: how much is measured.
    """

    def __init__(self, url: str, folder: Path, way: str, size: Size) -> None:
        self._target = SqlTarget(url, folder, f"by_{way}")
        self._way = way
        self._size = size
        self._batches = 0
        self.merge(list(range(size.rows)), deletes=False)
        self._target.run(f"{'ANALYZE' if self._target.is_postgresql else 'ANALYZE TABLE'} by_{way}")

    def merge(self, keys: Sequence[int], *, deletes: bool) -> float:
        """Merge one batch; return how many seconds its commit takes."""
        self._batches += 1
        attempt = an_attempt(f"{self._way}-{self._batches}")
        sink: SqlSink = self._target.sink(merge_on=("id",), **WAYS[self._way])
        sink.prepare([attempt], changes_of(attempt.batch_id, keys, self._batches, deletes=deletes))
        began = time.perf_counter()
        sink.commit([attempt])
        seconds = time.perf_counter() - began
        sink.discard([attempt])
        return seconds

    def change_some(self, numbers: random.Random) -> float:
        """Merge a batch of random keys, of which one of ten is new."""
        keys = numbers.sample(range(self._size.rows * 10 // 9), self._size.changes)
        return self.merge(keys, deletes="op" in WAYS[self._way])


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """The URLs of empty databases, by server."""
    with (
        running_postgres() as postgres,
        postgres_database(postgres.get_uri()) as url,
        MariaDb("--innodb-buffer-pool-size=1G") as server,
        server.database() as name,
    ):
        yield {POSTGRESQL: url, "mariadb": server.url(name)}


def measure(url: str, folder: Path, size: Size) -> dict[str, float]:
    """Return the median seconds of a batch, by way."""
    numbers = random.Random(1)
    tables = {way: MergedTable(url, folder, way, size) for way in WAYS}
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(size.repetitions):
        for way, table in tables.items():
            taken[way].append(table.change_some(numbers))
    return {way: round(statistics.median(seconds), 3) for way, seconds in taken.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller tables and batches, fewer of them")
    size = QUICK if parser.parse_args(arguments).quick else Size()
    with databases() as urls, tempfile.TemporaryDirectory(prefix="sql-merging-") as folder:
        measured = {server: measure(url, Path(folder), size) for server, url in urls.items()}
    print(f"{size.changes:,} changes into {size.rows:,} rows, medians of {size.repetitions} batches:\n")
    print(f"| server | {' | '.join(WAYS)} |\n|---|{'--:|' * len(WAYS)}")
    for server, seconds in measured.items():
        shown = (f"{taken:.2f} s ({taken / seconds['merge_on']:.2f})" for taken in seconds.values())
        print(f"| {server} | {' | '.join(shown)} |")
    print()
    print(json.dumps({"seconds": measured}))


if __name__ == "__main__":
    main()
