"""Whole jobs on one Spark: what they deliver, and the records that they set aside, are the same on every version.

They run on the Spark of SPARK_HOME, or of this Python. With SPARK_ROW_DUMP, the delivered rows, bad records and types
are written there, as a folder of JSON files: those of two versions are equal.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION
from airflow_provider_coordination.versions import find_installation
from demo.local_kinesis import LocalKinesis
from tests.support.many_sinks import KINDS, SCHEMA, TABLE, ManySinks
from tests.support.mariadb import MariaDb
from tests.support.s3_job import ObjectPipeline
from tests.support.s3_server import S3Server
from tests.support.spark_job import REPOSITORY
from tests.system.test_jdbc_ingestion import OrdersTable

pytestmark = pytest.mark.system
GOOD = [
    {"id": f"id-{number:02d}", "n": (number - 10) * 7 or 1, "amount": number / 8, "price": f"{number}.{number:02d}",
     "text": "Łódź 🚀\\N\n" * number, "at": f"19{60 + number}-03-04T05:06:07.123456Z", "day": f"20{number:02d}-02-28"}
    for number in range(20)
]  # fmt: skip
BAD = [
    b"", b"no", b'{"id": "a"', b"{'id': 'a'}", b"null", b"5", b"[]", b'{"id": "a"}{"id": "b"}', b'{"id": "a"} more',
    b'{"id": "\xff"}', b'{"id": "\xed\xa0\x80"}', b'{"id": "\xc0\xaf"}', b'{"n": 1}', b'{"id": null}',
    b'{"id": "a", "n": 1.5}', b'{"id": "a", "n": 9223372036854775808}', b'{"id": "a", "amount": "x"}',
    b'{"id": "a", "amount": NaN}', b'{"id": "a", "price": 1.005}', b'{"id": "a", "price": 99999999999.99}',
    b'{"id": "a", "at": "2024-02-30T00:00:00Z"}', b'{"id": "a", "at": "12:30"}', b'{"id": "a", "day": "2024-1-32"}',
    b'{"id": "a", "n": 1, "n": "x"}', b'{"id": "a", "n": 4711}', b'{"id": "a", "n": 0}',
]  # fmt: skip
"""Payloads that do not fit the schema, and two that the transform fails on."""
DUMP = "SPARK_ROW_DUMP"


def environment() -> dict[str, str]:
    """Return the variables with which the jobs have the Spark of these tests."""
    home = find_installation(is_driver=True).spark_home
    assert home is not None
    return {"SPARK_HOME": home, "PYTHONPATH": os.pathsep.join([str(Path(home).parent), str(REPOSITORY)])}


def dump(name: str, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> None:
    """Write rows, sorted, and their types to the folder in which versions are compared."""
    if folder := os.environ.get(DUMP):
        Path(folder).mkdir(parents=True, exist_ok=True)
        types = None if schema is None else {field.name: str(field.type) for field in schema}
        found = sorted(json.dumps(row, default=repr, sort_keys=True) for row in rows)
        Path(folder, f"{name}.json").write_text(json.dumps({"types": types, "rows": found}, indent=1))


@pytest.fixture
def sinks(
    kinesis: LocalKinesis, kinesis_stream: Any, postgres_url: str, mariadb_server: MariaDb, java: str, tmp_path: Path
) -> Iterator[ManySinks]:
    with ExitStack() as stack:
        mariadb = mariadb_server.url(stack.enter_context(mariadb_server.database()))
        store = f"sqlite:///{tmp_path}/coordination.db"
        made = ManySinks(kinesis, kinesis_stream(1), tmp_path, store, postgres=postgres_url, mariadb=mariadb)
        stack.callback(lambda: [job.kill() for job in made.jobs])
        made.sync()
        yield made


def tables_of(sinks: ManySinks) -> dict[str, pa.Table]:
    """Return what each sink holds."""
    from deltalake import DeltaTable

    return {
        "parquet": ds.dataset([*sinks.output.glob("*.parquet")], format="parquet").to_table(),
        "function": ds.dataset([*sinks.published.glob("*/*.parquet")], format="parquet").to_table(),
        "delta": pa.table(DeltaTable(sinks.lake).to_pyarrow_table()),
        "iceberg": sinks._iceberg_catalog().load_table(TABLE).scan().to_arrow(),
        **{name: pa.Table.from_pylist(target.records()) for name, target in sinks.tables.items()},
    }


def test_six_sinks_hold_each_good_record_once_despite_a_kill(sinks: ManySinks, tmp_path: Path) -> None:
    payloads = [json.dumps(record, ensure_ascii=False).encode() for record in GOOD]
    for first in (0, 1):  # so that the killed job and the next one have records of each kind
        for payload in (*payloads[first::2], *BAD[first::2]):
            data = {"PartitionKey": "a", "Data": payload or b" "}
            sinks.client.put_record(StreamName=sinks.stream, **data)
        options: dict[str, Any] = {
            "transform": "tests.support.transforms:named",
            "dead_letter_path": str(tmp_path / "bad"),
        }
        if first == 0:
            killed = sinks.crash("committed delta:1", env=environment(), **options)
            assert killed.process.returncode != 0 and "coordination-summary" not in killed.output, killed.output
            sinks.coordinator().give_up_owner(killed.settings.owner)
    job = sinks.start(env=environment(), **options)
    assert job.wait() == 0, job.output
    assert f"Spark {find_installation(is_driver=True).spark}" in job.output or job.summary["records_delivered"]

    held = tables_of(sinks)
    assert list(held) != [] and set(held) == set(KINDS)
    for name, table in held.items():
        rows = table.drop_columns("_batch_id").to_pylist()
        assert sorted(row["id"] for row in rows) == [record["id"] for record in GOOD], name
        assert {row["id"]: (row["n"], row["name"], row["doubled"]) for row in rows} == {
            record["id"]: (record["n"], f"n{record['n']}", 2 * record["n"]) for record in GOOD
        }, name
        is_typed = name not in sinks.tables
        dump(name, rows, table.drop_columns("_batch_id").schema if is_typed else None)
    bad = ds.dataset(tmp_path / "bad", format="parquet").to_table(columns=["data", "error", "stage"])
    assert sorted(bad["data"].to_pylist()) == sorted(payload or b" " for payload in BAD)
    dump("bad", bad.to_pylist(), bad.schema)


def test_table_is_ingested_by_jdbc_despite_a_kill(
    java: str, postgres_url: str, postgres_port: int, jdbc_drivers: list[Path], tmp_path: Path
) -> None:
    kinesis: Any = None
    url = f"sqlite:///{tmp_path}/coordination.db"
    table = OrdersTable(kinesis, "", tmp_path, url, database=postgres_url, port=postgres_port, jars=jdbc_drivers)
    table.insert(1, 5000)
    assert len(table.supply()) == 5
    killed = table.submit(Path(REPOSITORY / "tests/system/apps/crashing_ingest.py"), max_leases=2,
                          env={"CRASH_AT": "delivered:1", **environment()})  # fmt: skip
    assert killed.process.returncode != 0
    table.coordinator().give_up_owner(killed.settings.owner)
    job = table.submit(env=environment())
    assert job.process.returncode == 0, job.output
    found = ds.dataset([*table.output.glob("*.parquet")], format="parquet").to_table()
    assert sorted(found["id"].to_pylist()) == list(range(1, 5001))
    dump("jdbc", found.select(["id", "amount"]).to_pylist(), found.drop_columns("_batch_id").schema)


def test_files_are_ingested_despite_a_kill(s3: S3Server, s3_bucket: str, java: str, tmp_path: Path) -> None:
    pipeline = ObjectPipeline(s3, s3_bucket, tmp_path, max_objects=5)
    for number in range(20):
        pipeline.put(f"{number:02d}.json{'.gz' if number % 2 else ''}", range(number * 10, number * 10 + 10))
    assert len(pipeline.find()) == 4
    options: dict[str, Any] = {"schema": "id BIGINT NOT NULL"}
    killed = pipeline.run(Path(REPOSITORY / "tests/system/apps/crashing_ingest.py"), max_leases=2,
                          env={"CRASH_AT": "delivered:1", **environment()}, **options)  # fmt: skip
    assert killed.process.returncode != 0
    pipeline.coordinator().give_up_owner(killed.settings.owner)
    job = pipeline.run(env=environment(), **options)
    assert job.process.returncode == 0, job.output
    found = ds.dataset([*pipeline.output.glob("*.parquet")], format="parquet").to_table()
    assert sorted(found["id"].to_pylist()) == list(range(200))
    dump("files", found.select(["id", "data"]).to_pylist(), found.drop_columns("_batch_id").schema)


def test_variant_is_refused_by_name_before_any_lease(sinks: ManySinks) -> None:
    job = sinks.start(env=environment(), schema=f"v VARIANT, {SCHEMA}", transform="tests.support.transforms:named")
    is_old = str(find_installation(is_driver=True).spark).startswith("3.")
    assert job.wait() == (EXIT_CONFIGURATION if is_old else 0), job.output
    assert ("VARIANT needs Spark 4.0 or newer; this is Spark 3." in job.output) == is_old
    if is_old:
        assert [lease.owner for lease in sinks.coordinator(f"test-{uuid.uuid4().hex[:4]}").view.partitions()] == [None]
