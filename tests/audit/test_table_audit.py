"""The audit of a stream's tables finds what was injected, by their logs or by the rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from airflow_provider_coordination.audit.repair import plan_of, plan_repairs
from airflow_provider_coordination.audit.report import AuditFinding, AuditReport, State
from airflow_provider_coordination.audit.source_audit import audit_source
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources import items
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import Target
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks import Maintenance, make_sinks
from tests.support.sinks import catalog_in
from tests.support.table_jobs import FilesIntoTables, StreamIntoTables

RANGE = tuple[State, str | None, str | None]


class AuditedTable(StreamIntoTables):
    """A stream with one shard that jobs deliver to a table, a batch in each round.

    :param folder: an empty folder.
    """

    def __init__(self, folder: Path, table: SinkSettings) -> None:
        super().__init__(folder / "job", [table], shards=1)
        self.table = table
        self.positions = [""]
        self.sync()
        self.deliver(3)

    def deliver(self, rounds: int = 1) -> None:
        worker = self.start()
        for _ in range(rounds):
            self.send(20)
            self.clock.advance(5)
            self.work(worker)
            self.positions.append(self.checkpoint)
        self.stop(worker)

    @property
    def checkpoint(self) -> str:
        [partition] = self.look.view.partitions()
        return ShardProgress.from_mapping(partition.progress).checkpoint

    def audit(self, *, reads_rows: bool = False) -> AuditReport:
        return audit_source(self.look.view, [self.table], reads_rows=reads_rows)

    def wrong(self, *, reads_rows: bool = False) -> list[AuditFinding]:
        return [each for each in self.audit(reads_rows=reads_rows).findings if not each.is_explained]

    def batch(self, number: int) -> tuple[str | None, str | None]:
        """Return the range of a batch, from 1; the first one begins at the start of the shard."""
        return self.positions[number - 1] or "TRIM_HORIZON", self.positions[number]


class DeltaAudited(AuditedTable):
    """A Delta table."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.path = folder / "table"
        super().__init__(folder, SinkSettings(name="main", kind="delta", location=str(self.path), settings=settings))

    def files(self) -> list[Path]:
        """Return the data files, in the order of their batches."""
        actions = pa.table(DeltaTable(self.path).get_add_actions(flatten=True))
        of = dict(zip(actions["min._batch_id"].to_pylist(), actions["path"].to_pylist(), strict=True))
        history = reversed(DeltaTable(self.path).history())
        ids = [each["batch"]["batch_id"] for entry in history for each in _batches(entry)]
        return [self.path / of[batch_id] for batch_id in ids]

    def restore_before(self, batches: int) -> None:
        table = DeltaTable(self.path)
        table.restore(table.version() - batches)

    def delete(self, predicate: str) -> None:
        DeltaTable(self.path).delete(predicate)

    def first_number(self) -> str:
        return str(pa.table(DeltaTable(self.path).to_pyarrow_table())["sequence_number"][0])

    def copy_rows(self) -> None:
        rows = pa.table(DeltaTable(self.path).to_pyarrow_table()).slice(0, 5)
        write_deltalake(self.path, rows, mode="append")


class IcebergAudited(AuditedTable):
    """An Iceberg table."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        (folder / "iceberg").mkdir(parents=True)
        self.catalog = catalog_in(folder / "iceberg")
        table = SinkSettings(
            name="main",
            kind="iceberg",
            location="iceberg://test/lake.clicks",
            settings={"table": "lake.clicks", "properties": self.catalog, **settings},
        )
        super().__init__(folder, table)

    def load(self) -> Any:
        return load_catalog("default", **self.catalog).load_table("lake.clicks")

    def files(self) -> list[Path]:
        entries = self.load().inspect.data_files().to_pylist()
        in_order = sorted(entries, key=lambda each: Path(each["file_path"].removeprefix("file://")).stat().st_mtime_ns)
        return [Path(each["file_path"].removeprefix("file://")) for each in in_order]

    def restore_before(self, batches: int) -> None:
        table = self.load()
        snapshot = table.current_snapshot()
        for _ in range(batches):
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id)
        table.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()

    def delete(self, predicate: str) -> None:
        self.load().delete(predicate)

    def first_number(self) -> str:
        return str(self.load().scan().to_arrow()["sequence_number"][0])

    def copy_rows(self) -> None:
        table = self.load()
        table.append(table.scan().to_arrow().slice(0, 5))


def _batches(entry: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return json.loads(entry.get("coordination", "{}")).get("batches", ())


KINDS = {"delta": DeltaAudited, "iceberg": IcebergAudited}


@pytest.fixture(params=sorted(KINDS))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return KINDS[request.param](tmp_path)


def range_of(finding: AuditFinding) -> RANGE:
    return finding.state, finding.after, finding.until


@pytest.mark.parametrize("reads_rows", [False, True])
def test_sound_table_is_complete(table: Any, reads_rows: bool) -> None:
    report = table.audit(reads_rows=reads_rows)
    assert not report.findings and not report.sinks[0].notes
    [shard] = report.sinks[0].partitions
    assert (shard.batches, shard.records, shard.rows, shard.until) == (3, 60, 60, table.checkpoint)


def test_maintained_table_is_complete(table: Any) -> None:
    [sink] = make_sinks([table.table])
    sink.maintain(Maintenance(retention=timedelta(hours=1)))
    report = table.audit(reads_rows=True)
    assert not report.findings and not report.sinks[0].notes


def test_restored_table_is_a_gap_from_its_last_batch(table: Any) -> None:
    table.restore_before(1)
    gap = next(each for each in table.wrong() if each.partition_key)
    assert range_of(gap) == (State.GAP, *table.batch(3)) and gap.batches == 1
    table.deliver()
    later = next(each for each in table.wrong() if each.partition_key)
    assert range_of(later) == range_of(gap), "it is found later too"


def test_deleted_file_is_a_gap_with_its_range(table: Any) -> None:
    table.files()[1].unlink()
    for reads_rows in (False, True):
        gap = next(each for each in table.wrong(reads_rows=reads_rows) if each.partition_key)
        assert range_of(gap) == (State.GAP, *table.batch(2)) and "is gone" in gap.reason


def test_changed_file_is_unexplained(table: Any) -> None:
    file = table.files()[1]
    file.write_bytes(file.read_bytes() + b"PAR1")
    found = next(each for each in table.wrong() if each.partition_key)
    assert range_of(found) == (State.UNEXPLAINED, *table.batch(2)) and "others changed it" in found.reason


def test_rows_that_others_delete_show_by_total_and_by_batch(table: Any) -> None:
    table.delete(f"sequence_number = '{table.first_number()}'")
    [total] = table.wrong()
    assert total.state is State.UNEXPLAINED and "has 59 rows, and 60 were delivered" in total.reason
    assert "was made by others" in table.audit().sinks[0].notes[0]
    by_batch = [each for each in table.wrong(reads_rows=True) if each.partition_key]
    assert [each.state for each in by_batch] == [State.GAP] and "19 rows instead of the 20" in by_batch[0].reason


def test_rows_that_others_copy_are_an_overlap(table: Any) -> None:
    table.copy_rows()
    by_batch = [each for each in table.wrong(reads_rows=True) if each.partition_key]
    assert [each.state for each in by_batch] == [State.OVERLAP] and "25 rows instead of the 20" in by_batch[0].reason
    assert any("has 65 rows" in each.reason for each in table.wrong())


def test_table_that_is_gone_is_named(table: Any, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / ("table" if isinstance(table, DeltaAudited) else "iceberg"))
    (tmp_path / "iceberg").mkdir(exist_ok=True)
    [finding] = table.wrong()
    assert finding.state is State.UNEXPLAINED and "the sink cannot be read" in finding.reason and finding.remedy


def test_expired_delta_log_compares_what_is_left(tmp_path: Path) -> None:
    table = DeltaAudited(tmp_path)
    DeltaTable(table.path).create_checkpoint()
    for version in range(3):
        (table.path / "_delta_log" / f"{version:020}.json").unlink()
    report = table.audit()
    [shard] = report.sinks[0].partitions
    assert not report.findings and shard.batches == 1 and (shard.since, shard.until) == table.batch(3)
    assert "reaches back to" in report.sinks[0].notes[0]


def test_expired_snapshots_compare_what_is_left(tmp_path: Path) -> None:
    table = IcebergAudited(tmp_path)
    loaded = table.load()
    for snapshot in loaded.snapshots()[:2]:
        loaded.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    report = table.audit()
    [shard] = report.sinks[0].partitions
    assert not report.findings and shard.batches == 1 and (shard.since, shard.until) == table.batch(3)
    assert "reaches back to" in report.sinks[0].notes[0]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_merged_table_compares_batches_and_not_rows(tmp_path: Path, kind: str) -> None:
    table = KINDS[kind](tmp_path, merge_on=["data"])
    report = table.audit(reads_rows=True)
    assert not report.findings and any("replace others" in note for note in report.sinks[0].notes)
    table.restore_before(1)
    gap = next(each for each in table.wrong() if each.partition_key)
    assert range_of(gap) == (State.GAP, *table.batch(3))


# Items


def test_lost_file_of_items_is_a_gap(tmp_path: Path) -> None:
    table = SinkSettings(name="main", kind="parquet", location=str(tmp_path / "lake"))
    files = FilesIntoTables(tmp_path / "job", [table])
    for number in range(5):
        files.put(f"{number}.json", range(10 * number, 10 * number + 10))
    files.scan()
    files.run()
    view = files.coordinator("auditor").view
    report = audit_source(view, [table], reads_rows=True)
    assert not report.findings and sum(each.records for each in report.sinks[0].partitions) == 50
    next(iter((tmp_path / "lake").glob("*.parquet"))).unlink()
    findings = audit_source(view, [table]).findings
    assert findings and {each.state for each in findings} == {State.GAP} and findings[0].after == ""


@pytest.mark.parametrize("are_keys_long", [False, True])
def test_repair_of_items_reads_the_lost_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, are_keys_long: bool
) -> None:
    table = SinkSettings(name="main", kind="parquet", location=str(tmp_path / "lake"))
    files = FilesIntoTables(tmp_path / "job", [table])
    for number in range(4):
        files.put(f"{number}.json", range(10 * number, 10 * number + 10))
    files.scan()
    files.run()
    coordinator = files.coordinator("auditor")
    next(iter((tmp_path / "lake").glob("*.parquet"))).unlink()
    target = Target(name="repair", requested_at=files.clock.now())
    known = {each.partition_key: each for each in coordinator.view.partitions()}
    if are_keys_long:  # the keys of repairs are shortened
        monkeypatch.setattr(items, "MAX_KEY_BYTES", max(map(len, known)) + 5)
    planned = plan_repairs(audit_source(coordinator.view, [table]), known, target)
    assert planned and all(each.repair is not None and "creates partition" in each.repair.text for each in planned)
    resets = Resets(AcknowledgmentSets(coordinator, SourceBatches()))
    assert all(isinstance(result, Partition) for _, result in resets.apply(plan_of(planned, target)))
    known = {each.partition_key: each for each in coordinator.view.partitions()}
    again = plan_repairs(audit_source(coordinator.view, [table]), known, target)
    assert again and all(each.repair is None and "wait until that is completed" in each.problem for each in again)
    files.run()
    report = audit_source(coordinator.view, [table], reads_rows=True)
    assert not report.findings, report.findings
    rows = [row for file in (tmp_path / "lake").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert sorted(json.loads(row["data"])["id"] for row in rows) == list(range(40))
