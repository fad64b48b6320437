"""The benchmark of audits fills sinks as jobs do, so that what it takes away is what an audit finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from airflow_provider_coordination.audit.report import AuditReport
from airflow_provider_coordination.audit.source_audit import audit_source
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from benchmarks import audit
from tests.support.sinks import catalog_in

SHARDS, BATCHES = 2, 8


def commit_each(folder: Path) -> SinkSettings:
    """Fill an Iceberg table with a commit for each delivery."""
    table = audit.new_iceberg_table(folder)
    for number, attempts in enumerate(audit.deliveries(SHARDS, BATCHES, 10)):
        with table.transaction() as transaction:
            audit.append_to_iceberg(transaction, number, attempts)
    return audit.iceberg_settings(folder)


def chain(folder: Path) -> list[tuple[Any, ...]]:
    """Return what readers see of the snapshots in effect, from the latest."""
    table = load_catalog("default", **catalog_in(folder)).load_table("lake.clicks")
    metadata, snapshot = table.metadata, table.current_snapshot()
    assert [each.snapshot_id for each in metadata.snapshot_log] == [each.snapshot_id for each in metadata.snapshots]
    found = []
    while snapshot is not None:
        numbers = [each.sequence_number for each in snapshot.manifests(table.io)]
        tasks = table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
        files = sorted(Path(task.file.file_path).name for task in tasks)
        found.append((snapshot.sequence_number, snapshot.summary, numbers, files))
        snapshot = metadata.snapshot_by_id(snapshot.parent_snapshot_id or -1)
    return found


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_measure_finds_what_was_taken_away(kind: str) -> None:
    figures = audit.measure(kind, SHARDS, BATCHES)

    assert (figures["sink"], figures["batches"]) == (kind, BATCHES)


def test_fill_iceberg_makes_what_single_commits_make(tmp_path: Path) -> None:
    one, many = tmp_path / "one", tmp_path / "many"
    sinks = {one: audit.fill_iceberg(one, SHARDS, BATCHES), many: commit_each(many)}
    view = audit.view_of(SHARDS, BATCHES)

    def reports() -> list[AuditReport]:
        return [audit_source(view, [sink]) for sink in sinks.values()]

    assert chain(one) == chain(many) and len(chain(one)) == BATCHES // SHARDS
    [whole, expected] = reports()
    assert whole == expected and not whole.findings
    for folder in sinks:
        audit.take_from_iceberg(folder)
    [lacking, expected] = reports()
    assert lacking == expected and len(lacking.findings) == SHARDS
