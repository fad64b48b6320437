"""Rows that a SQL table refuses, by what refuses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.layout import ITEM_RECORDS
from airflow_provider_coordination.spark.refused_rows import RefusedRows
from airflow_provider_coordination.spark.sinks.sql import SqlSink
from tests.spark.sinks.test_sql import FIRST, deliver
from tests.support.sinks import an_attempt
from tests.support.sql_tables import SERVERS, SqlTarget

pytestmark = [pytest.mark.integration, pytest.mark.share(0.3)]


@pytest.fixture(params=SERVERS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> SqlTarget:
    return SqlTarget(request.getfixturevalue(SERVERS[request.param]), tmp_path)


CONSTRAINED = {
    "check": "n INTEGER CHECK (n < 100)",
    "unique": "n INTEGER UNIQUE",
    "not null": "n INTEGER NOT NULL",
    "foreign key": "n INTEGER, FOREIGN KEY (n) REFERENCES places (id)",
}
"""The definition of the column `n`; 999, 7 twice and null are what some refuse."""
REFUSED = {"check": [999], "unique": [7], "not null": [None], "foreign key": [999]}


def refusing(target: SqlTarget, columns: str, **changed: Any) -> tuple[SqlSink, Path]:
    """Return a sink that sets refused rows aside, on a new table, with the folder of the dead letters."""
    for table in (target.settings.table, "_coordination_batches", "places"):
        target.run(f"DROP TABLE IF EXISTS {table}")
    target.run("CREATE TABLE places (id INTEGER PRIMARY KEY)")
    target.run("INSERT INTO places VALUES (1), (2), (3), (7)")
    target.run(f"CREATE TABLE {target.settings.table} (_batch_id VARCHAR(255), {columns})")
    sink, folder = target.sink(**changed), Path(str(target.settings.staging_path)) / "dead"
    sink.refused_rows = RefusedRows(
        str(folder), layout=ITEM_RECORDS, source="clicks", max_share=0.4, bad_records=BadRecords()
    )
    return sink, folder


def letters_in(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


@pytest.mark.parametrize("constraint", CONSTRAINED)
def test_rows_against_a_constraint_are_set_aside(target: SqlTarget, constraint: str) -> None:
    sink, folder = refusing(target, CONSTRAINED[constraint])
    values = [1, 2, 3, 7, *REFUSED[constraint]]

    deliver(sink, n=pa.array(values, pa.int32()))

    assert target.rows("n") == [(1,), (2,), (3,), (7,)]
    assert [json.loads(row["row"])["n"] for row in letters_in(folder)] == REFUSED[constraint]
    assert target.run("SELECT row_count FROM _coordination_batches") == [(4,)]


def test_rows_against_a_deferred_constraint_are_set_aside(target: SqlTarget) -> None:
    if not target.is_postgresql:  # it has no deferred constraints
        return
    sink, folder = refusing(target, "n INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED")

    deliver(sink, n=pa.array([1, 7, 2, 7, 3], pa.int32()))

    assert target.rows("n") == [(1,), (2,), (3,), (7,)] and len(letters_in(folder)) == 1


def test_merged_rows_against_a_constraint_are_set_aside(target: SqlTarget) -> None:
    sink, folder = refusing(target, "k INTEGER PRIMARY KEY, n INTEGER CHECK (n < 100)", merge_on=("k",))
    first, second = FIRST, an_attempt("b-1")

    deliver(sink, first, k=pa.array([1, 2, 3], pa.int32()), n=pa.array([10, 20, 30], pa.int32()))
    deliver(sink, second, k=pa.array([1, 2, None, 4, 5], pa.int32()), n=pa.array([11, 999, 1, 40, 50], pa.int32()))

    assert target.rows("k, n") == [(1, 11), (2, 20), (3, 30), (4, 40), (5, 50)]
    assert sorted(json.loads(row["row"])["n"] for row in letters_in(folder)) == [1, 999]


def test_values_that_do_not_fit_are_set_aside(target: SqlTarget) -> None:
    text = "VARCHAR(5)" if target.is_postgresql else "ENUM('a', 'b')"
    sink, folder = refusing(target, f"k INTEGER, x DOUBLE PRECISION, t {text}")
    wrong = "a\0" if target.is_postgresql else "other"

    deliver(sink, k=pa.array([1, 2, 3], pa.int32()), x=[0.5, 1.5, 2.5], t=["a", wrong, "b"])

    assert target.rows("k, t") == [(1, "a"), (3, "b")]
    [letter] = letters_in(folder)
    assert json.loads(letter["row"])["k"] == 2 and letter["error"]


def test_table_that_refuses_every_row_is_no_matter_of_rows(target: SqlTarget) -> None:
    sink, folder = refusing(target, "n INTEGER CHECK (n < 0)")

    with pytest.raises(
        DeliveryError, match=r"refuses 1000 or more of 1000 rows, which is more than 'max_refused_share'"
    ):
        deliver(sink, n=pa.array(range(1000), pa.int32()))

    assert target.rows("n") == [] and letters_in(folder) == []
