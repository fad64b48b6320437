"""Objects of a real S3 server are read whole, in parts and ahead; damaged and missing ones are reported."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import (
    Item,
    ItemGoneError,
    ItemReader,
    ItemUnreadableError,
    SourceUnavailableError,
)
from airflow_provider_coordination.sources.s3 import object_streams, reader
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.listing import listing_of
from airflow_provider_coordination.sources.s3.reader import ObjectReader
from airflow_provider_coordination.spark.item_file import ItemPlan
from airflow_provider_coordination.spark.item_landing import land_partition
from airflow_provider_coordination.spark.parquet_files import read_table
from airflow_provider_coordination.spark.slots import LandingOptions
from tests.support.s3_server import DENIED, S3Server


class Bucket:
    """A bucket, and what reads it."""

    def __init__(self, server: S3Server, name: str) -> None:
        self.name = name
        self.aws = server.settings
        self.client = server.client()

    def put(self, key: str, body: bytes) -> Item:
        """Put an object; return the item that a listing makes of it."""
        self.client.put_object(Bucket=self.name, Key=key, Body=body)
        return next(item for item in self.items() if item["uri"].endswith(f"/{key}"))

    def items(self) -> list[Item]:
        pages = listing_of(f"s3://{self.name}/", self.aws).pages()
        return [each.to_item() for page in pages for each in page.found]

    def reader(self, aws: AwsSettings | None = None, **chosen: Any) -> ObjectReader:
        return ObjectReader(
            S3Objects(
                paths=(f"s3://{self.name}/",),
                aws=aws or self.aws,
                format=chosen.pop("name", "text"),
                format_options=chosen,
            )
        )


@pytest.fixture
def bucket(s3: S3Server, s3_bucket: str) -> Bucket:
    return Bucket(s3, s3_bucket)


def read(reader: ItemReader, item: Item, position: str = "") -> list[Any]:
    return [row["data"] for page in reader.read(item, position) for row in page.records.to_pylist()]


def test_objects_are_read_by_any_name_from_any_position(bucket: Bucket) -> None:
    lines = [str(n).encode() for n in range(1000)]
    body = b"\n".join(lines) + b"\n"
    for key in ("a b/ü+%41&=?#.txt", "plain.txt"):
        item = bucket.put(key, body)
        assert read(bucket.reader(), item) == lines
        assert read(bucket.reader(), item, str(body.index(b"\n500\n") + 1)) == lines[500:]
        assert read(bucket.reader(), item, str(len(body))) == []
    assert read(bucket.reader(), bucket.put("empty.txt", b"")) == []


def test_large_parquet_is_read_in_parts(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(object_streams, "WHOLE_BYTES", 1000)
    table = pa.table({"n": range(100_000), "data": [os.urandom(8) for _ in range(100_000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=30_000)
    item = bucket.put("a.parquet", (tmp_path / "a.parquet").read_bytes())
    reader = bucket.reader(name="parquet", columns="n BIGINT")
    assert [n for page in reader.read(item, "50000") for n in page.records["n"].to_pylist()] == [
        *range(50_000, 100_000)
    ]


def test_object_deleted_or_replaced_since_listing_is_gone(bucket: Bucket) -> None:
    deleted, replaced = bucket.put("deleted.txt", b"1\n"), bucket.put("replaced.txt", b"1\n")
    bucket.client.delete_object(Bucket=bucket.name, Key="deleted.txt")
    bucket.put("replaced.txt", b"2\n")
    with pytest.raises(ItemGoneError, match=r"deleted\.txt does not exist any more"):
        read(bucket.reader(), deleted)
    with pytest.raises(ItemGoneError, match="was replaced since it was listed"):
        read(bucket.reader(), replaced)
    with bucket.reader().reading([deleted, replaced]) as ahead, pytest.raises(ItemGoneError):
        read(ahead, deleted)


def test_denied_access_is_reported(bucket: Bucket, s3: S3Server) -> None:
    item = bucket.put("a.txt", b"1\n")
    with pytest.raises(ConfigurationError, match=r"cannot read: .* allow s3:GetObject on it"):
        read(bucket.reader(s3.settings_of(*DENIED)), item)


def test_damaged_object_differs_from_an_unavailable_server(bucket: Bucket) -> None:
    whole = gzip.compress(os.urandom(10_000))
    item = bucket.put("a.gz", whole[:-100])
    with pytest.raises(ItemUnreadableError, match="it is not complete gzip"):
        read(bucket.reader(), item)
    nowhere = replace(bucket.aws, endpoint_url="http://127.0.0.1:9", max_attempts=1)
    with pytest.raises(SourceUnavailableError, match="no valid response"):
        read(bucket.reader(nowhere), item)


def test_only_small_objects_are_prefetched(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SMALL_BYTES", 100)
    monkeypatch.setattr(reader, "AHEAD_OBJECTS", 4)
    for n in range(30):
        bucket.client.put_object(
            Bucket=bucket.name, Key=f"{n:02d}", Body=f"{n}\n".encode() * (200 if n % 7 == 3 else 1)
        )
    items = bucket.items()
    bucket.client.delete_object(Bucket=bucket.name, Key="05")
    found = []
    with bucket.reader().reading(items) as ahead:
        for n, item in enumerate(items):
            assert ahead.origin(item) == f"s3://{bucket.name}/{n:02d}"
            if n == 5:
                with pytest.raises(ItemGoneError):
                    read(ahead, item)
            elif n != 12:  # one that is passed over
                found += sorted({int(line) for line in read(ahead, item)})
    assert found == [n for n in range(30) if n not in (5, 12)]
    with bucket.reader().reading(items) as ahead:
        assert read(ahead, items[0], "2") == [] and read(ahead, items[1]) == [b"1"]


def test_piecewise_landing_holds_every_record_once(bucket: Bucket, tmp_path: Path) -> None:
    lines = [b"%07d%s" % (n, b"x" * 93) for n in range(90_000)]
    large = b"\n".join(lines)
    bucket.client.put_object(Bucket=bucket.name, Key="a.gz", Body=gzip.compress(large, 1))
    bucket.client.put_object(Bucket=bucket.name, Key="b", Body=large)
    bucket.client.put_object(Bucket=bucket.name, Key="c", Body=b"last")
    options = LandingOptions(root=str(tmp_path), seconds=100, max_bytes=2**22, slot_memory_bytes=2**25)
    found: list[bytes] = []
    start, batches, is_last = "", 0, False
    while not is_last:
        plan = ItemPlan(
            source_identifier="objects|PARTITION",
            partition_key="all",
            kind="s3",
            fencing_token=1,
            items=tuple(dict(item) for item in bucket.items()),
            start=start,
        )
        row = land_partition(bucket.reader(), options, plan)
        assert row.error is None
        found += read_table(row.file, ["data"])["data"].to_pylist() if row.file else []
        start, batches, is_last = row.end, batches + 1, row.is_last
    assert found == [*lines, *lines, b"last"] and batches > 4


# A body that breaks off


class TruncatingHandler(BaseHTTPRequestHandler):
    """Answers with part of what was asked for, and closes."""

    body = b"".join(b"%d\n" % n for n in range(1000))
    left = 0
    requests: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        cls = type(self)
        cls.requests.append(self.headers["Range"])
        start = int((self.headers["Range"] or "bytes=0-")[6:].split("-")[0])
        whole = self.body[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(whole)))
        self.send_header("ETag", '"tag"')
        self.end_headers()
        cls.left -= 1
        self.wfile.write(whole[: len(whole) // 2] if cls.left >= 0 else whole)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def truncating_server() -> Iterator[AwsSettings]:
    TruncatingHandler.requests = []
    with ThreadingHTTPServer(("127.0.0.1", 0), TruncatingHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        port = server.server_address[1]
        yield AwsSettings(
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{port}",
            access_key_id="test",
            secret_access_key="test",
            max_attempts=1,
        )
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("is_ahead", [False, True])
def test_interrupted_body_is_resumed(bucket: Bucket, truncating_server: AwsSettings, is_ahead: bool) -> None:
    TruncatingHandler.left = 3
    item = {"uri": "s3://bucket/key", "size": len(TruncatingHandler.body), "version": '"tag"'}
    reader = bucket.reader(truncating_server)
    if is_ahead:
        with reader.reading([item]) as ahead:
            found = read(ahead, item)
    else:
        found = read(reader, item)
    assert found == TruncatingHandler.body.split()
    assert len(TruncatingHandler.requests) == 4 and TruncatingHandler.requests[0] is None


def test_repeatedly_interrupted_body_is_left_for_later(bucket: Bucket, truncating_server: AwsSettings) -> None:
    TruncatingHandler.left = 1000
    TruncatingHandler.body, whole = b"x", TruncatingHandler.body
    try:
        item = {"uri": "s3://bucket/key", "size": 1, "version": '"tag"'}
        with pytest.raises(SourceUnavailableError, match="reading was interrupted 5 times at byte 0"):
            read(bucket.reader(truncating_server), item)
    finally:
        TruncatingHandler.body = whole
