"""Delta tables on a real object store that only a connection reaches."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark import table_sinks
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.landed_identity import as_landed, file_name, under_token
from airflow_provider_coordination.spark.parquet_files import write_table
from airflow_provider_coordination.spark.sinks import owed
from airflow_provider_coordination.spark.sinks.delta.log import storage_options
from airflow_provider_coordination.spark.sinks.delta.sink import DeltaSink
from airflow_provider_coordination.spark.storage import file_size, files_below, publish
from airflow_provider_coordination.spark.tombstones import FOLDER
from airflow_provider_coordination.spark.writes import DeltaTable
from tests.support.landed_tables import deliver as deliver_landed
from tests.support.landed_tables import prepare
from tests.support.merged_tables import BY_CHANGES, CHANGES, MergedRows
from tests.support.s3_server import ALLOWED, OPEN_BUCKET, S3Server
from tests.support.sinks import BatchRows, an_attempt, under_next_lease


@pytest.fixture(autouse=True)
def no_ambient_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def a_sink(path: str, aws: AwsSettings, **settings: Any) -> DeltaSink:
    described = DeltaTable(path, **settings)
    return DeltaSink(name="main", path=path, access=Access(((path, aws),)), settings=described)


def deliver(sink: DeltaSink, aws: AwsSettings, values: dict[str, list[int]], *attempts: Any) -> None:
    sink.prepare(attempts, BatchRows(values, Access(((sink.location, aws),))))
    sink.commit(attempts)
    sink.discard(attempts)


def batches_in(path: str, aws: AwsSettings) -> dict[str, list[int]]:
    table = Table(path, storage_options=storage_options(path, Access(((path, aws),)))())
    found: dict[str, list[int]] = {}
    for row in table.to_pyarrow_table().to_pylist():
        found.setdefault(row["_batch_id"], []).append(row["n"])
    return {batch_id: sorted(values) for batch_id, values in found.items()}


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_batches_are_delivered_in_a_bucket_without_logged_secrets(
    s3: S3Server, s3_bucket: str, caplog: pytest.LogCaptureFixture, scheme: str
) -> None:
    caplog.set_level(logging.DEBUG)
    path, one, other = f"{scheme}://{s3_bucket}/lake/clicks", an_attempt("a-1"), an_attempt("b-1")
    sink = a_sink(path, s3.settings)
    sink.check()
    deliver(sink, s3.settings, {"a-1": [1, 2], "b-1": [3]}, one, other)
    again = under_next_lease(one, rejected=True)
    successor = a_sink(path, s3.settings)
    for attempt in (again, under_next_lease(other)):
        successor.sweep({attempt.folder: attempt.fencing_token})
    left = owed(successor, [again, under_next_lease(other)])
    deliver(successor, s3.settings, {"a-1": [5]}, *left)
    assert [attempt.batch_id for attempt in left] == ["a-1"]
    assert batches_in(path, s3.settings) == {"a-1": [5], "b-1": [3]}
    _, secret = ALLOWED
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("airflow_provider")]
    assert not [message for message in ours if secret in message]
    assert secret not in repr(sink.__dict__["_log"].__dict__)


@pytest.fixture
def other_bucket(s3: S3Server) -> Iterator[str]:
    name = f"landing-{uuid.uuid4().hex[:12]}"
    s3.client().create_bucket(Bucket=name)
    yield name
    s3.delete_bucket(name)


@pytest.mark.parametrize("where", ["below the table", "in another bucket", "on a disk"])
def test_landed_files_become_data_files_from_any_location(
    s3: S3Server, s3_bucket: str, other_bucket: str, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_sinks, "SMALL_FILE_BYTES", 0)
    path = f"s3://{s3_bucket}/lake/clicks"
    places = {"below the table": f"{path}/_landing", "in another bucket": f"s3://{other_bucket}/raw"}
    landing, access = places.get(where, str(tmp_path)), Access(((path, s3.settings),))
    attempts = []
    for batch_id, values in {"a-1": [1, 2], "b-1": [3]}.items():
        file = f"{landing}/clicks/{batch_id}/{file_name('5', 1)}"
        rows = pa.table({"n": values, "_batch_id": [batch_id] * len(values)})
        size = write_table(as_landed(rows, batch_id), file, access)
        attempts.append(an_attempt(batch_id, file=file, file_bytes=size, records=len(values)))
    former, place = a_sink(path, s3.settings).landed_delivery(keep=False), under_token(attempts[1].file, 2)
    prepare(former, attempts)
    publish(attempts[1].file, place, access=access)
    with pytest.raises(MissingFileError, match="is gone"):
        former.commit("main", attempts)
    next_owner = a_sink(path, s3.settings).landed_delivery(keep=False)
    deliver_landed(next_owner, [attempts[0], replace(under_next_lease(attempts[1]), file=place)])
    assert batches_in(path, s3.settings) == {"a-1": [1, 2], "b-1": [3]}
    assert [file_size(file, access) is None for file in (attempts[0].file, attempts[1].file, place)] == [0, 1, 0]


def test_concurrent_jobs_commit_their_batches_to_a_bucket_once(s3: S3Server, s3_bucket: str) -> None:
    path, rounds, jobs = f"s3://{s3_bucket}/lake/clicks", 4, 3

    def work(job: int) -> None:
        sink = a_sink(path, s3.settings)
        for number in range(1, rounds + 1):
            mine = an_attempt(f"j{job}-{number}")
            both = an_attempt(f"shared-{number}", token=job)
            deliver(sink, s3.settings, {mine.batch_id: [number], both.batch_id: [number]}, mine, *owed(sink, [both]))

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(1, jobs + 1)))
    found = batches_in(path, s3.settings)
    assert found == {
        **{f"j{job}-{number}": [number] for job in range(1, jobs + 1) for number in range(1, rounds + 1)},
        **{f"shared-{number}": [number] for number in range(1, rounds + 1)},
    }


def test_concurrent_jobs_keep_deleted_keys_in_a_bucket(s3: S3Server, s3_bucket: str) -> None:
    path, rounds, keys = f"s3://{s3_bucket}/lake/keys", 3, "vwxyz"
    access = Access(((path, s3.settings),))

    def work(job: int) -> None:
        sink = a_sink(path, s3.settings, merge_on=("Key",), **BY_CHANGES)
        for number in range(1, rounds + 1):
            attempt, version = an_attempt(f"j{job}-{number}"), 10 * (1 + (number + job) % rounds) + job
            op = "REMOVE" if version > 30 and job == 1 else None
            sink.prepare(
                [attempt], MergedRows({attempt.batch_id: [(k, job, version, op) for k in keys]}, CHANGES, access)
            )
            sink.commit([attempt])
            sink.discard([attempt])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (1, 0)))
    assert batches_in(path, s3.settings) == {}, "the delete of job 1 has the greatest version, 31"
    assert len(files_below(f"{path}/{FOLDER}", access)) == 1


def test_unwritable_bucket_is_named_by_the_field(s3: S3Server) -> None:
    with pytest.raises(ConfigurationError, match=r"^DeltaTable 'main': field 'path' is 's3://") as raised:
        a_sink(f"s3://{OPEN_BUCKET}/lake", s3.settings_of("denied", "denied-secret")).check()
    assert "denied-secret" not in str(raised.value)
