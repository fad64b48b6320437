"""Deleted keys of an Iceberg table after a rollback, an expiry of snapshots by others, and maintenance."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sinks import Maintenance
from airflow_provider_coordination.spark.sinks.iceberg.snapshots import TOMBSTONES, known_tombstones
from airflow_provider_coordination.spark.tombstones import FOLDER
from tests.support.merged_tables import BY_CHANGES, CHANGES, Row, a_sink, deliver
from tests.support.sinks import IcebergUnderTest, SinkTarget, an_attempt, catalog_in

PUT, DELETE, LATE = ("x", 1, 1), ("x", None, 5, "REMOVE"), ("x", 2, 3)


@pytest.fixture
def target(tmp_path: Path) -> SinkTarget:
    return SinkTarget(IcebergUnderTest(), tmp_path / "sink")


def merge(target: SinkTarget, batch_id: str, *rows: Row) -> None:
    deliver(a_sink(target, **BY_CHANGES), {batch_id: rows}, an_attempt(batch_id), schema=CHANGES)


def table_of(target: SinkTarget) -> Table:
    return load_catalog("default", **catalog_in(target.folder)).load_table("lake.clicks")


def add_foreign_row(target: SinkTarget) -> None:
    row = {"Key": "foreign", "n": 7, "version": 1, "op": None, "_batch_id": "foreign"}
    table_of(target).append(pa.Table.from_pylist([row], CHANGES))


def tombstone_files(target: SinkTarget) -> list[Path]:
    return [file for file in target.folder.rglob("*.parquet") if FOLDER in file.parts]


def test_snapshot_and_table_name_the_same_tombstones(target: SinkTarget) -> None:
    merge(target, "a-1", PUT)
    merge(target, "b-1", DELETE)
    table = table_of(target)
    snapshot: Any = table.current_snapshot()
    assert table.properties[TOMBSTONES] == snapshot.summary[TOMBSTONES] == tombstone_files(target)[0].stem


def test_deleted_keys_outlive_all_snapshots_of_deliveries(target: SinkTarget) -> None:
    merge(target, "a-1", PUT)
    merge(target, "b-1", DELETE)
    add_foreign_row(target)
    table = table_of(target)
    latest: Any = table.current_snapshot()
    expired = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != latest.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(expired).commit()
    merge(target, "c-1", LATE)
    assert target.visible == {"foreign": [7]}


def test_rollback_brings_its_tombstones_back(target: SinkTarget) -> None:
    merge(target, "a-1", PUT)
    merge(target, "b-1", DELETE)
    first, second = (snapshot.snapshot_id for snapshot in table_of(target).snapshots())
    merge(target, "c-1", ("y", None, 5, "REMOVE"))
    table_of(target).manage_snapshots().rollback_to_snapshot(second).commit()
    merge(target, "e-1", LATE, ("y", 3, 1))
    assert target.visible == {"e-1": [3]}
    table_of(target).manage_snapshots().rollback_to_snapshot(first).commit()
    merge(target, "f-1", LATE)
    assert target.visible == {"f-1": [2]}


def test_maintenance_removes_only_unnamed_tombstones(target: SinkTarget) -> None:
    merge(target, "a-1", PUT)
    for number in range(1, 4):
        merge(target, f"b-{number}", DELETE)
    lost = tombstone_files(target)[0].with_stem("7")
    lost.write_bytes(b"of a job that died")
    for file in target.folder.rglob("*.parquet"):
        os.utime(file, (0, 0))
    sink = a_sink(target, **BY_CHANGES)
    sink.maintain(Maintenance(compact=False, retention=timedelta(days=1)))
    assert {int(file.stem) for file in tombstone_files(target)} == known_tombstones(table_of(target).metadata) - {0}
    assert len(tombstone_files(target)) == 3
    sink.maintain(Maintenance(compact=False, retention=timedelta(0)))
    assert [file.stem for file in tombstone_files(target)] == [table_of(target).properties[TOMBSTONES]]
    merge(target, "c-1", LATE)
    assert target.visible == {}


def test_missing_tombstones_stop_a_merge_until_given_up(target: SinkTarget) -> None:
    merge(target, "a-1", DELETE)
    for file in tombstone_files(target):
        file.unlink()
    with pytest.raises(DeliveryError, match=r"is missing, which has keys that were deleted .* 'tombstone_retention'"):
        merge(target, "b-1", LATE)
    retention = {**BY_CHANGES, "tombstone_retention": "PT0S"}
    deliver(a_sink(target, **retention), {"b-1": [LATE]}, an_attempt("b-1"), schema=CHANGES)
    merge(target, "c-1", ("y", 3, 1))
    assert target.visible == {"b-1": [2], "c-1": [3]}
