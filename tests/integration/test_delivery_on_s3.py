"""Files of landing and dataset on a real object store, where a rename is a copy and a delete."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyarrow import fs

from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark import storage
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.landed_identity import as_landed, file_name
from airflow_provider_coordination.spark.settings import MAIN
from airflow_provider_coordination.spark.sinks.parquet import ParquetSink, PublishLanded
from airflow_provider_coordination.spark.storage import MissingFileError
from tests.support.s3_server import ALLOWED, REGION, S3Server
from tests.support.sinks import BatchRows

BATCH = "shard-1-abc"
FOLDER = "clicks/shard"


@pytest.fixture
def root(s3: S3Server, s3_bucket: str) -> Iterator[str]:
    key, secret = ALLOWED
    server = fs.S3FileSystem(
        access_key=key,
        secret_key=secret,
        region=REGION,
        endpoint_override=s3.endpoint_url.removeprefix("http://"),
        scheme="http",
    )
    with patch.object(storage, "_open", lambda uri: (server, uri.removeprefix("s3://"))):
        yield f"s3://{s3_bucket}/lake"


def an_attempt(root: str, token: int = 1, **changes: bool) -> Attempt:
    file = f"{root}/_landing/{FOLDER}/{file_name('5', token)}"
    size = storage.write_table(as_landed(pa.table({"n": [1, 2]}), BATCH), file)
    batch = LandedBatch(
        batch_id=BATCH, start="5", end="9", file=file, file_bytes=size, records=2, bytes=1, is_last=False,
        read_until=None, fencing_token=token, **changes,
    )  # fmt: skip
    return Attempt(
        batch=batch, file=file, folder=FOLDER, set_id=f"{BATCH}.{token}", fencing_token=token,
        source="clicks", partition_key="shard-1", owner="job",
    )  # fmt: skip


def published(root: str) -> list[int] | None:
    file = f"{root}/{BATCH}.parquet"
    return storage.read_table(file)["n"].to_pylist() if storage.exists(file) else None


def test_a_landed_file_is_published_once_and_gone_afterwards(root: str) -> None:
    attempt, delivery = an_attempt(root), PublishLanded(root)
    delivery.prepare([attempt], [MAIN])
    delivery.commit(MAIN, [attempt])
    assert published(root) == [1, 2]
    assert storage.file_size(attempt.file) is None
    storage.delete_file(attempt.file)  # as by who acknowledges


def test_without_its_landed_file_a_former_owner_publishes_nothing(root: str) -> None:
    attempt, delivery = an_attempt(root), PublishLanded(root)
    delivery.prepare([attempt], [MAIN])
    storage.delete_file(attempt.file)
    with pytest.raises(MissingFileError, match="is gone"):
        delivery.commit(MAIN, [attempt])
    assert published(root) is None


def test_what_was_published_serves_as_the_landed_file(root: str) -> None:
    first = an_attempt(root)
    delivery = PublishLanded(root, keep=True)
    storage.publish(first.file, f"{root}/{BATCH}.parquet")
    again = an_attempt(root, 2, redeliver=True)
    storage.delete_file(again.file)
    delivery.prepare([again], [MAIN])
    delivery.commit(MAIN, [again])
    assert published(root) == [1, 2] and storage.file_size(again.file) == again.batch.file_bytes


def test_a_sweep_takes_what_is_staged_and_the_right_to_publish_it(root: str) -> None:
    attempt, sink = an_attempt(root), ParquetSink(name=MAIN, path=root)
    sink.prepare([attempt], BatchRows({BATCH: [3]}))
    PublishLanded(root).sweep(FOLDER, 2)
    with pytest.raises(DeliveryError, match="is gone or not whole"):
        sink.commit([attempt])
    assert published(root) is None


def test_a_rejected_delivery_is_replaced(root: str) -> None:
    first, sink = an_attempt(root), ParquetSink(name=MAIN, path=root)
    sink.prepare([first], BatchRows({BATCH: [3]}))
    sink.commit([first])
    again = an_attempt(root, 2, redeliver=True)
    sink.prepare([again], BatchRows({BATCH: []}))
    sink.commit([again])
    assert published(root) == []
