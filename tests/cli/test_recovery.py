"""`recover` restores a source from its tables after the loss of its store, without loss or duplicates."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks.delta.sink import DeltaSink
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.cli.conftest import CommandResult, Shell
from tests.support.sinks import catalog_in
from tests.support.table_jobs import FilesIntoTables, StreamIntoTables, payloads

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
FAMILIES = ("PARTITION", "CLAIM", "GLOBAL_STATE")


class TableFolder:
    """A folder with a Delta and an Iceberg table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "iceberg").mkdir()
        catalog = catalog_in(folder / "iceberg")
        self.delta = SinkSettings(name="delta", kind="delta", location=str(folder / "delta"))
        self.iceberg = SinkSettings(
            name="iceberg",
            kind="iceberg",
            location="iceberg://test/lake.clicks",
            settings={"table": "lake.clicks", "properties": catalog},
        )
        self.tables = [self.delta, self.iceberg]
        self.as_given = {
            "delta": f"delta: {{path: {folder / 'delta'}}}",
            "iceberg": "iceberg: {table: lake.clicks, catalog: {type: sql, uri: '"
            + catalog["uri"]
            + "', warehouse: '"
            + catalog["warehouse"]
            + "'}}",
        }

    def rows(self, kind: str) -> pa.Table:
        if kind == "delta":
            return DeltaTable(self.folder / "delta").to_pyarrow_table()
        catalog = load_catalog("default", **catalog_in(self.folder / "iceberg"))
        return catalog.load_table("lake.clicks").scan().to_arrow()


@pytest.fixture
def table_folder(tmp_path: Path) -> TableFolder:
    return TableFolder(tmp_path)


@pytest.fixture
def store(store_url: str) -> CoordinationStore:
    opened = open_store(StoreSettings.from_url(store_url))
    opened.initialize()
    return opened


@pytest.fixture
def recover(shell: Shell, store: CoordinationStore, table_folder: TableFolder) -> Callable[..., CommandResult]:
    def run(source: str, *options: str, tables: tuple[str, ...] = ("delta", "iceberg")) -> CommandResult:
        given = [option for table in tables for option in ("--from-table", table_folder.as_given[table])]
        landing = () if "--landing-path" in options else ("--landing-path", str(table_folder.folder / "_landing"))
        return shell("recover", source, *given, *landing, *options)

    return run


def brought_over(source: str, store: CoordinationStore) -> InMemoryStore:
    """Return a store in memory with what a source has in another one."""
    made = InMemoryStore()
    for family in FAMILIES:
        made.create(list(all_partitions(store, f"{source}|{family}")))
    return made


def lost(stream: StreamIntoTables, store: InMemoryStore) -> None:
    """Let the jobs of a stream work on another store."""
    stream.workers.clear()
    stream.store = store
    stream.look = stream.coordinator("look", store)


def run(stream: StreamIntoTables, rounds: int = 3) -> None:
    worker = stream.start()
    for _ in range(rounds):
        stream.clock.advance(5)
        stream.work(worker)
    if worker.name in stream.workers:
        stream.stop(worker)


def once(events: list[str]) -> Counter[str]:
    return Counter(dict.fromkeys(events, 1))


def test_stream_resumes_after_the_delivered_batches(
    table_folder: TableFolder, store: CoordinationStore, recover: Callable[..., CommandResult]
) -> None:
    stream = StreamIntoTables(table_folder.folder, table_folder.tables)
    stream.send(40)
    stream.sync()
    run(stream)
    stream.split(0)
    stream.send(20)
    stream.sync()
    run(stream, rounds=6)
    stream.send(30)

    assert recover("clicks", "--yes").exit_code == 0
    lost(stream, brought_over("clicks", store))
    stream.sync()
    stream.settle()

    assert payloads(table_folder.rows("delta")) == payloads(table_folder.rows("iceberg")) == once(stream.sent)


def test_batch_missing_in_one_table_is_delivered_from_its_file(
    table_folder: TableFolder, store: CoordinationStore, recover: Callable[..., CommandResult]
) -> None:
    stream = StreamIntoTables(table_folder.folder, table_folder.tables)
    stream.send(10)
    stream.sync()
    run(stream)
    stream.send(20)
    with_a_failing(table_folder, "iceberg", stream)
    assert payloads(table_folder.rows("delta")) != payloads(table_folder.rows("iceberg"))

    ended = recover("clicks", "--yes")
    assert ended.exit_code == 0 and "to deliver to tables that lack it" in ended.out
    lost(stream, brought_over("clicks", store))
    stream.sync()
    stream.settle()

    assert payloads(table_folder.rows("delta")) == payloads(table_folder.rows("iceberg")) == once(stream.sent)


def test_missing_landed_file_stops_the_recovery(
    table_folder: TableFolder, store: CoordinationStore, recover: Callable[..., CommandResult]
) -> None:
    stream = StreamIntoTables(table_folder.folder, table_folder.tables)
    stream.send(10)
    stream.sync()
    run(stream)
    stream.send(20)
    with_a_failing(table_folder, "iceberg", stream)

    ended = recover("clicks", "--yes", "--landing-path", str(table_folder.folder / "elsewhere"))

    assert ended.exit_code == 1 and "its landed file is gone" in ended.out
    assert not list(all_partitions(store, "clicks|PARTITION"))


def with_a_failing(table_folder: TableFolder, kind: str, stream: StreamIntoTables) -> None:
    """Make a round in which the commits of one table fail."""
    from airflow_provider_coordination.spark.sinks.iceberg.sink import IcebergSink

    def fail(*details: Any) -> None:
        raise OSError("the table is down")

    with patch.object({"iceberg": IcebergSink, "delta": DeltaSink}[kind], "commit", fail):
        worker = stream.start()
        stream.clock.advance(5)
        stream.work(worker)
    stream.lose(worker)


def test_rejected_and_redelivered_batch_counts_once(
    table_folder: TableFolder, store: CoordinationStore, recover: Callable[..., CommandResult]
) -> None:
    stream = StreamIntoTables(table_folder.folder, table_folder.tables, shards=1, by=("check",), max_pending_batches=3)
    stream.sync()
    worker = stream.start()
    for _ in range(3):
        stream.send(5)
        stream.clock.advance(5)
        stream.work(worker)
    sets = AcknowledgmentSets(stream.look, SourceBatches())
    first = min(sets.view.pending(), key=lambda each: each.created_at)
    sets.acknowledge(first.set_id, positive=False, handle="check", reason="looks wrong")
    for _ in range(4):
        stream.clock.advance(70)
        if worker.name in stream.workers:
            stream.work(worker)
    assert payloads(table_folder.rows("delta")) == once(stream.sent)

    assert recover("clicks", "--yes").exit_code == 0
    lost(stream, brought_over("clicks", store))
    stream.settings = {}
    stream.send(5)
    stream.sync()
    stream.settle()

    assert payloads(table_folder.rows("delta")) == payloads(table_folder.rows("iceberg")) == once(stream.sent)


def test_prefix_resumes_with_undelivered_objects_only(
    table_folder: TableFolder, store: CoordinationStore, recover: Callable[..., CommandResult]
) -> None:
    files = FilesIntoTables(table_folder.folder, table_folder.tables)
    for n in range(5):
        files.put(f"{n}.json", range(10 * n, 10 * n + 10))
    files.scan()
    files.run()
    files.put("5.json", range(50, 60))
    files.scan()  # its partition is lost with the store
    files.put("6.json", range(60, 70))

    assert recover(files.SOURCE, "--yes").exit_code == 0
    files.store = brought_over(files.SOURCE, store)
    files.scan()
    files.run()

    expected = Counter({f'{{"id": {n}}}': 1 for n in range(70)})
    assert payloads(table_folder.rows("delta")) == payloads(table_folder.rows("iceberg")) == expected


def test_dry_run_writes_nothing(
    table_folder: TableFolder, store: CoordinationStore, recover: Callable[..., CommandResult]
) -> None:
    delivered_stream(table_folder)

    ended = recover("clicks", "--dry-run")

    assert ended.exit_code == 0 and "would be written" in ended.out
    assert not list(all_partitions(store, "clicks|PARTITION"))


def test_existing_source_is_left_alone_unless_forced(
    table_folder: TableFolder, store: CoordinationStore, recover: Callable[..., CommandResult]
) -> None:
    delivered_stream(table_folder)
    assert recover("clicks", "--yes").exit_code == 0
    [one, *_] = there = list(all_partitions(store, "clicks|PARTITION"))
    store.delete(one)

    refused = recover("clicks", "--yes")
    assert refused.exit_code == 1 and "the store already has partitions of source 'clicks'" in refused.err
    assert recover("clicks", "--yes", "--force").exit_code == 0

    assert {p.partition_key for p in all_partitions(store, "clicks|PARTITION")} == {p.partition_key for p in there}


def test_table_added_later_causes_no_redelivery(
    table_folder: TableFolder, store: CoordinationStore, recover: Callable[..., CommandResult]
) -> None:
    files = FilesIntoTables(table_folder.folder, [table_folder.delta])
    files.put("0.json", range(10))
    files.scan()
    files.run()
    files.tables = table_folder.tables
    files.clock.advance(60)
    files.put("1.json", range(10, 20))
    files.scan()
    files.run()

    assert recover(files.SOURCE, "--yes").exit_code == 0
    files.store = brought_over(files.SOURCE, store)
    assert files.scan() == []
    files.run()

    assert payloads(table_folder.rows("delta")) == Counter({f'{{"id": {n}}}': 1 for n in range(20)})


def test_expired_commits_need_the_partial_option(
    table_folder: TableFolder, recover: Callable[..., CommandResult]
) -> None:
    delivered_stream(table_folder)
    table = load_catalog("default", **catalog_in(table_folder.folder / "iceberg")).load_table("lake.clicks")
    [first, *_] = table.snapshots()
    assert len(table.snapshots()) > 1
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()

    ended = recover("clicks", "--yes")

    assert ended.exit_code == 1 and "have expired" in ended.err
    assert "written." in recover("clicks", "--yes", "--partial").out


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("parquet: {path: /data/lake/clicks}", "do not record how far partitions were delivered"),
        ("delta: {path: /nowhere}", "there is no table"),
        ("delta: {}", "path"),
        ("nothing: {}", "nothing"),
    ],
)
def test_invalid_table_is_refused(shell: Shell, store: CoordinationStore, given: str, problem: str) -> None:
    ended = shell("recover", "clicks", "--from-table", given, "--yes")
    assert ended.exit_code == 2 and problem in ended.err


def test_table_of_other_sources_is_refused(table_folder: TableFolder, recover: Callable[..., CommandResult]) -> None:
    delivered_stream(table_folder)
    ended = recover("orders", "--yes")
    assert ended.exit_code == 2 and "has no batch of source 'orders|PARTITION'" in ended.err and "clicks" in ended.err


def test_manual_example_shows_the_output_of_recover(
    shell: Shell, store: CoordinationStore, table_folder: TableFolder
) -> None:
    [example] = re.findall(r"^```sh\n\$ airflow-coordination (recover .*?)^```", PAGE.read_text(), re.M | re.S)
    line, _, shown = example.partition("\n")
    table_folder.tables = [table_folder.delta]
    delivered_stream(table_folder)

    written = shell(*shlex.split(line.replace("/data/lake/clicks", str(table_folder.folder / "delta"))))

    assert [each.split() for each in written.out.splitlines()] == [each.split() for each in shown.splitlines()]


def delivered_stream(table_folder: TableFolder) -> None:
    stream = StreamIntoTables(table_folder.folder, table_folder.tables)
    stream.sync()
    for _ in range(2):
        stream.send(10)
        run(stream)
