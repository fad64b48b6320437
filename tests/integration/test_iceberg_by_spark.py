"""Spark with Iceberg's jar reads, deletes from, compacts and cleans a table into which jobs merge."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from sqlalchemy import make_url

from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.spark.tombstones import FOLDER
from tests.support.merged_tables import BY_CHANGES, CHANGES, Row, deliver
from tests.support.sinks import an_attempt
from tests.support.table_readers import read_iceberg, read_iceberg_by_spark

pytestmark = [pytest.mark.integration, pytest.mark.only_deep(daily=False), pytest.mark.timeout(900)]
TABLE = "lake.merged"
DAYS = 5 * 86_400
READ = f"SELECT n FROM jobs.{TABLE} ORDER BY n"
DELETE = [
    f"ALTER TABLE jobs.{TABLE} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')",
    f"DELETE FROM jobs.{TABLE} WHERE n IN (4, 5)",
]


class MergedTable:
    """A table that jobs and Spark change.

    :param folder: the folder of its warehouse.
    :param postgres: the database of its catalog.
    :param port: where that database answers Java.
    """

    def __init__(self, folder: Path, postgres: str, port: int) -> None:
        self.folder = folder
        self._url = make_url(postgres)
        self._port = port
        self._catalog = {"type": "sql", "uri": postgres, "warehouse": str(folder)}

    def merge(self, batch_id: str, *rows: Row) -> None:
        given = {"table": TABLE, "catalog_name": "jobs", "properties": self._catalog, "merge_on": ["Key"], **BY_CHANGES}
        [sink] = make_sinks([SinkSettings(name="main", kind="iceberg", location="iceberg://test", settings=given)])
        deliver(sink, {batch_id: rows}, replace(an_attempt(batch_id), owner="job"), schema=CHANGES)

    def by_spark(self, *queries: str) -> list[list[list[Any]]]:
        return read_iceberg_by_spark(
            *queries,
            catalog="jobs",
            jdbc=f"jdbc:postgresql://127.0.0.1:{self._port}/{self._url.database}",
            user=str(self._url.username),
            warehouse=str(self.folder),
        )

    @property
    def table(self) -> Table:
        return load_catalog("jobs", **self._catalog).load_table(TABLE)

    def by_others(self) -> list[list[int]]:
        """Return what pyiceberg and DuckDB read."""
        found = read_iceberg("SELECT n FROM {table} ORDER BY n", self.table.metadata_location)
        return [sorted(self.table.scan().to_arrow()["n"].to_pylist()), found["n"].to_pylist()]


@pytest.fixture
def merged(tmp_path: Path, postgres_url: str, postgres_port: int) -> MergedTable:
    return MergedTable(tmp_path / "warehouse", postgres_url, postgres_port)


def test_spark_and_jobs_see_each_others_deletes(merged: MergedTable) -> None:
    merged.merge("a-1", *((f"key-{n}", n, 7) for n in range(10)))
    merged.merge("b-1", ("key-1", 11, 8), ("key-2", None, 8, "REMOVE"), ("new", 20, 1))
    read, *_, after = merged.by_spark(READ, *DELETE, READ)
    assert read == [[n] for n in (0, 3, 4, 5, 6, 7, 8, 9, 11, 20)]
    assert after == [[n] for n in (0, 3, 6, 7, 8, 9, 11, 20)]
    merged.merge("c-1", ("key-4", 40, 3), ("key-3", 30, 8), ("key-2", 2, 3), ("key-9", None, 9, "REMOVE"))
    expected = [0, 6, 7, 8, 11, 20, 30, 40]
    assert merged.by_others() == [expected, expected]

    orphan = next(merged.folder.rglob("*-deletes.parquet")).with_name("orphan.parquet")
    orphan.write_bytes(b"of a job that died")
    for file in merged.folder.rglob("*"):
        if file.is_file():
            os.utime(file, (file.stat().st_mtime - DAYS,) * 2)
    read, positions, data, cleaned, *_, again = merged.by_spark(
        READ,
        f"CALL jobs.system.rewrite_position_delete_files(table => '{TABLE}', options => map('rewrite-all', 'true'))",
        f"CALL jobs.system.rewrite_data_files(table => '{TABLE}', options => map('rewrite-all', 'true'))",
        f"CALL jobs.system.remove_orphan_files(table => '{TABLE}')",
        READ,
    )
    assert read == again == [[n] for n in expected] and positions and data
    assert [Path(file).name for [file] in cleaned] == ["orphan.parquet"]
    assert list(merged.folder.rglob(f"{FOLDER}/*.parquet")), "Spark leaves tombstones alone"

    merged.merge("d-1", ("key-9", 9, 8), ("key-2", 2, 3), ("key-0", None, 8, "REMOVE"), ("key-6", 60, 8))
    expected = [7, 8, 11, 20, 30, 40, 60]
    assert merged.by_others() == [expected, expected]
