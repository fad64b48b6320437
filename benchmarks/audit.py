"""How long an audit takes: by metadata, and with the rows.

Sinks are filled as jobs fill them: each delivery has one batch of every partition. The batches in the ledger of the
dataset, the commits of the Delta and the Iceberg table and the rows in PostgreSQL are described by the code of the
sinks, the files are empty or small. Then a source with all its partitions is audited, and a second time with one batch
of each taken away. These must be the findings.

`--rows` audits the rows of a dataset too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, TableUpdate
from pyiceberg.typedef import Record

from airflow_provider_coordination.audit.report import AuditReport, State
from airflow_provider_coordination.audit.source_audit import audit_source
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, ShardRange, partition_key
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.dataset_ledger import FOLDER
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.landed_identity import partition_folder
from airflow_provider_coordination.spark.ledger import short_description
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks.delta import log as delta
from airflow_provider_coordination.spark.sinks.delta.log import TableLog
from airflow_provider_coordination.spark.sinks.iceberg.snapshots import summary_of
from airflow_provider_coordination.spark.sinks.sql.table import CommittedBatches
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.servers import running_postgres
from tests.support.sinks import catalog_in
from tests.support.sql_tables import SqlTarget

SOURCE = "clicks"
URL = "AUDITED_DATABASE"
"""The variable with the URL of the database."""
FIRST = 49_079_267_755_522_363_867_066_779_213_470_213_071_329_270_252_671_834_898
STEP = 1_000_000_007
SCHEMA = pa.schema([pa.field("data", pa.binary()), pa.field("_batch_id", pa.string())])


def key_of(shard: int) -> str:
    """Return the key of a shard's partition."""
    return partition_key(SOURCE, 1_767_225_600, f"shardId-{shard:012}")


def id_of(shard: int, number: int) -> str:
    """Return the id of a batch."""
    return f"shardId-{shard:012}-{number:020x}"


def start_of(number: int) -> str:
    """Return the position after which a batch begins."""
    return "TRIM_HORIZON" if number == 1 else str(FIRST + (number - 1) * STEP)


def attempt_of(shard: int, number: int, rows: int) -> Attempt:
    """Return the delivery of a batch."""
    key = key_of(shard)
    batch = LandedBatch(
        batch_id=id_of(shard, number), start=start_of(number), end=start_of(number + 1), records=rows,
        bytes=rows * 100, fencing_token=1_767_225_600_000_001, ordinal=number,
    )  # fmt: skip
    return Attempt(
        batch=batch, file="", folder=partition_folder(f"{SOURCE}|PARTITION", key), set_id=f"{batch.batch_id}.1f2e3d4c",
        fencing_token=batch.fencing_token, source=f"{SOURCE}|PARTITION", partition_key=key,
        owner="host:dag:run:task:-1:1:aa", rows=rows,
    )  # fmt: skip


def deliveries(shards: int, batches: int, rows: int) -> Iterator[list[Attempt]]:
    """Yield the batches of each delivery: one of each shard."""
    for number in range(1, batches // shards + 1):
        yield [attempt_of(shard, number, rows) for shard in range(shards)]


def descriptions(shards: int, batches: int, rows: int) -> Iterator[list[dict[str, Any]]]:
    """Yield what the ledger records of each delivery, described by the code of the sinks once for each shard."""
    described = [short_description(attempt_of(shard, 2, rows)) for shard in range(shards)]
    for number in range(1, batches // shards + 1):
        start, end = start_of(number), start_of(number + 1)
        place = {"start": start, "end": end, "ordinal": number}
        yield [
            {**one, "batch": {**one["batch"], "batch_id": id_of(shard, number), **place}}
            for shard, one in enumerate(described)
        ]


def view_of(shards: int, batches: int) -> SourceView:
    """Return the source after all deliveries."""
    store, last = InMemoryStore(), batches // shards
    view = SourceView(store, SOURCE)
    view.initialize()
    shard_range = ShardRange("", (), "0", "1")
    store.create(
        [
            view.new(
                key_of(shard),
                ShardProgress.first(
                    SOURCE, replace(shard_range, shard_id=f"shardId-{shard:012}"), checkpoint=str(FIRST + last * STEP),
                    ordinal=last,
                ).to_mapping(),
            )
            for shard in range(shards)
        ]
    )  # fmt: skip
    return view


def fill_dataset(folder: Path, shards: int, batches: int, *, rows: int = 0) -> SinkSettings:
    """Fill a dataset with a file for each delivery, as shared files are."""
    ledger = folder / FOLDER
    ledger.mkdir(parents=True)
    for number, described in enumerate(descriptions(shards, batches, rows or 10)):
        file = folder / f"{number:08x}.parquet"
        if rows:
            ids = pa.array([one["batch"]["batch_id"] for one in described for _ in range(rows)])
            data = pa.array([b"x" * 20] * len(ids))
            pq.write_table(pa.table([data, ids], SCHEMA), file)
        else:
            file.write_bytes(b"0123456789")
        files = {file.name: file.stat().st_size}
        (ledger / f"{number:024x}.json").write_text(
            json.dumps([{**one, "files": files} for one in described], separators=(",", ":"))
        )
    return SinkSettings(name="main", kind="parquet", location=str(folder))


def take_from_dataset(folder: Path) -> None:
    """Delete the file of a delivery."""
    next(iter(sorted(folder.glob("*.parquet")))).unlink()


def fill_delta(folder: Path, shards: int, batches: int) -> SinkSettings:
    """Fill a Delta table with a commit for each delivery."""
    log = TableLog(str(folder), dict)
    log.create(Schema.from_arrow(SCHEMA), [])
    for number, attempts in enumerate(deliveries(shards, batches, 10)):
        name = f"data-{number:08x}.parquet"
        (folder / name).write_bytes(b"0123456789")
        ids = [attempt.batch_id for attempt in attempts]
        stats = json.dumps(
            {
                "numRecords": 10 * len(attempts), "minValues": {"_batch_id": min(ids)},
                "maxValues": {"_batch_id": max(ids)}, "nullCount": {"_batch_id": 0},
            }
        )  # fmt: skip
        table = DeltaTable(str(folder))
        action = AddAction(name, 10, {}, int(time.time() * 1000), True, stats)
        delta.change_files(table, [action], log.properties(table, attempts, "main"))
        if number % 100 == 99:
            DeltaTable(str(folder)).create_checkpoint()
    return SinkSettings(name="main", kind="delta", location=str(folder))


def take_from_delta(folder: Path) -> None:
    """Take the table back to its last version but one."""
    table = DeltaTable(str(folder))
    table.restore(table.version() - 1)


def fill_iceberg(folder: Path, shards: int, batches: int) -> SinkSettings:
    """Fill an Iceberg table with a snapshot for each delivery.

    A commit writes all snapshots again. So pyiceberg makes each snapshot on a table that has only the one before it,
    and the catalog gets them all in one commit.
    """
    table = new_iceberg_table(folder)
    catalog, updates = table.catalog, list[TableUpdate]()
    for number, attempts in enumerate(deliveries(shards, batches, 10)):
        transaction = table.transaction()
        append_to_iceberg(transaction, number, attempts)
        updates += transaction._updates
        made = transaction.table_metadata
        table.metadata = made.model_copy(update={"snapshots": made.snapshots[-1:], "snapshot_log": []})
    catalog.commit_table(table, (AssertRefSnapshotId(ref=MAIN_BRANCH),), tuple(updates))
    catalog.close()
    return iceberg_settings(folder)


def new_iceberg_table(folder: Path) -> Table:
    """Create a catalog with an empty table."""
    folder.mkdir(parents=True)
    catalog = load_catalog("default", **catalog_in(folder))
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.clicks", SCHEMA)
    Path(table.location().removeprefix("file://"), "data").mkdir(parents=True)
    return table


def append_to_iceberg(transaction: Transaction, number: int, attempts: Sequence[Attempt]) -> None:
    """Add the snapshot of a delivery with a file to a transaction, as the sink does."""
    metadata = transaction.table_metadata
    file = f"{metadata.location}/data/{number:08x}.parquet"
    Path(file.removeprefix("file://")).write_bytes(b"0123456789")
    entry = DataFile.from_args(
        content=DataFileContent.DATA, file_path=file, file_format=FileFormat.PARQUET, partition=Record(),
        record_count=10 * len(attempts), file_size_in_bytes=10,
    )  # fmt: skip
    entry.spec_id = metadata.default_spec_id
    with transaction.update_snapshot(snapshot_properties=summary_of(attempts)).fast_append() as append:
        append.append_data_file(entry)


def iceberg_settings(folder: Path) -> SinkSettings:
    """Return the settings of the sink that has the table."""
    location, settings = "iceberg://audited/lake.clicks", {"table": "lake.clicks", "properties": catalog_in(folder)}
    return SinkSettings(name="main", kind="iceberg", location=location, settings=settings)


def take_from_iceberg(folder: Path) -> None:
    """Take the table back to its last snapshot but one."""
    table = load_catalog("default", **catalog_in(folder)).load_table("lake.clicks")
    last = table.current_snapshot()
    assert last is not None and last.parent_snapshot_id is not None
    table.manage_snapshots().rollback_to_snapshot(last.parent_snapshot_id).commit()


def fill_postgresql(folder: Path, shards: int, batches: int) -> SinkSettings:
    """Fill the table of batches with a row for each."""
    target = _target(folder)
    batches_of_target = CommittedBatches(target.database, "main")
    target.run(f"CREATE TABLE {target.settings.table_name} (_batch_id VARCHAR(255))")
    with target.database.engine.begin() as connection:
        batches_of_target.create(connection)
        for described in descriptions(shards, batches, 10):
            rows = [
                {
                    "target": target.settings.table_name, "batch_id": one["batch"]["batch_id"], "sink": "main",
                    "partition_folder": "folder", "set_id": "set", "fencing_token": 1, "row_count": 10,
                    "committed_at": datetime.now(UTC), "described": json.dumps(one),
                }
                for one in described
            ]  # fmt: skip
            connection.execute(sa.insert(batches_of_target._table), rows)
    return target.sink_settings()


def take_from_postgresql(folder: Path) -> None:
    """Delete what records the second batch of each shard."""
    _target(folder).run(f"DELETE FROM _coordination_batches WHERE batch_id LIKE '%%-{2:020x}'")


def _target(folder: Path) -> SqlTarget:
    return SqlTarget(os.environ[URL], folder)


@contextmanager
def database() -> Iterator[None]:
    """Run a PostgreSQL for the sink."""
    with running_postgres() as server, patch.dict(os.environ, {URL: str(server.get_uri())}):
        yield


def timed(audit: Callable[[], AuditReport]) -> tuple[float, float, AuditReport]:
    """Return how long an audit takes, the time of the processors that it takes, both in seconds, and its report."""
    began, began_cpu = time.monotonic(), time.process_time()
    report = audit()
    return time.monotonic() - began, time.process_time() - began_cpu, report


KINDS: Mapping[str, tuple[Callable[..., SinkSettings], Callable[[Path], None]]] = {
    "parquet": (fill_dataset, take_from_dataset),
    "delta": (fill_delta, take_from_delta),
    "iceberg": (fill_iceberg, take_from_iceberg),
    "postgresql": (fill_postgresql, take_from_postgresql),
}


def measure(kind: str, shards: int, batches: int, *, rows: int = 0) -> dict[str, float | int | str]:
    """Fill a sink, audit it, take a batch away, and audit again."""
    root = Path(tempfile.mkdtemp(prefix="audit-"))
    try:
        folder = root / "lake"
        fill, take = KINDS[kind]
        settings = fill(folder, shards, batches, **({"rows": rows} if rows else {}))
        view = view_of(shards, batches)
        seconds, cpu_seconds, report = timed(lambda: audit_source(view, [settings], reads_rows=bool(rows)))
        assert report.state is State.COMPLETE, report.findings[:3]
        assert sum(each.batches for each in report.sinks[0].partitions) == batches
        take(folder)
        again = audit_source(view, [settings], reads_rows=bool(rows))
        gaps = [each for each in again.findings if each.state is State.GAP]
        assert len(gaps) == shards and {each.batches for each in gaps} == {1}, again.findings[:3]
    finally:
        shutil.rmtree(root)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {
        "sink": kind, "batches": batches, "in_a_delivery": shards, "rows": rows * batches,
        "seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds, 2), "peak_mb": peak,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10,000 batches at most")
    parser.add_argument("--rows", action="store_true", help="count the rows of a dataset too")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only this kind of sink; all by default")
    given = parser.parse_args(arguments)
    cases: list[tuple[str, int, int, int]] = [(kind, 100, 10_000, 0) for kind in KINDS]
    if not given.quick:
        cases += [("iceberg", 100, 100_000, 0)]
        cases += [(kind, 1_000, 1_000_000, 0) for kind in KINDS]
    cases = [case for case in cases if not given.kind or case[0] in given.kind]
    if given.rows:
        cases.append(("parquet", 100, 10_000, 100 if given.quick else 1_000))
    figures = []
    print("| sink | batches | in a delivery | rows | seconds | CPU seconds | peak MB |\n|---|--:|--:|--:|--:|--:|--:|")
    for kind, shards, batches, rows in cases:
        with database() if kind == "postgresql" else nullcontext():
            figures.append(measure(kind, shards, batches, rows=rows))
        shown = (f"{value:,}" if isinstance(value, int) else str(value) for value in figures[-1].values())
        print("|", " | ".join(shown), "|")
    print()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
