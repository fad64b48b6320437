"""Exports are found or started, and read as AWS documents their layout."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.dynamodb_export.files import ExportFailedError, ExportReader, ExportSupplier
from airflow_provider_coordination.sources.dynamodb_export.kind import DynamoDBExport
from airflow_provider_coordination.sources.items import Item, ItemGoneError, ItemUnreadableError, ReadPage
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.aws_wire import AwsWire
from tests.support.dynamodb_export import EXPORT_ARN, EXPORT_ID, TABLE_ARN, typed, write_export

AWS = AwsSettings(region="us-east-1", access_key_id="test", secret_access_key="test", max_attempts=1)


def settings(**changes: Any) -> DynamoDBExport:
    return DynamoDBExport(aws=AWS, s3=AWS, **changes)


def coordinator() -> SourceCoordinator:
    made = SourceCoordinator(InMemoryStore(), "orders", "test")
    made.initialize()
    return made


def partitions(of: DynamoDBExport) -> dict[str, list[Item]]:
    pages = ExportSupplier(of, coordinator())({})
    return {key: progress["items"] for page in pages for key, progress in page.partitions.items()}


def read(pages: Iterator[ReadPage]) -> list[Any]:
    return [json.loads(data)["n"] for page in pages for data in page.records.column("data").to_pylist()]


def test_export_files_hold_each_item_once(tmp_path: Path) -> None:
    location = write_export(tmp_path, [range(3), range(3, 5), range(0), range(5, 9)])
    chosen = settings(location=str(location), files_per_partition=2)
    found = partitions(chosen)
    assert [len(items) for items in found.values()] == [2, 1]
    reader = ExportReader(chosen)
    assert [n for items in found.values() for item in items for n in read(reader.read(item, ""))] == list(range(9))


def test_reading_resumes_at_any_page_position(tmp_path: Path) -> None:
    chosen = settings(location=str(write_export(tmp_path, [range(100)])))
    [[item]] = partitions(chosen).values()
    reader = ExportReader(chosen, page_bytes=1000)
    pages = list(reader.read(item, ""))
    assert len(pages) > 3
    for n, page in enumerate(pages):
        assert read(iter(pages[: n + 1])) + read(reader.read(item, page.position)) == list(range(100))


def test_deleted_file_has_nothing_left_to_read(tmp_path: Path) -> None:
    location = write_export(tmp_path, [range(3)])
    chosen = settings(location=str(location))
    [[item]] = partitions(chosen).values()
    Path(item["uri"]).unlink()
    with pytest.raises(ItemGoneError):
        list(ExportReader(chosen).read(item, ""))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gzip.compress(b'{"Item": {"n": {"N": "1"}}}\n')[:-8], "not complete gzip"),
        (gzip.compress(b'{"n": 1}\n'), "is not an item in DynamoDB's JSON"),
        (gzip.compress(b'{"Item": {"n": 1}}\n'), "not a typed value"),
    ],
    ids=["cut off", "no item", "no type"],
)
def test_damaged_file_is_unreadable(tmp_path: Path, content: bytes, says: str) -> None:
    chosen = settings(location=str(write_export(tmp_path, [range(3)])))
    [[item]] = partitions(chosen).values()
    Path(item["uri"]).write_bytes(content)
    with pytest.raises(ItemUnreadableError, match=says):
        list(ExportReader(chosen).read(item, ""))


def test_files_keep_their_partitions_when_settings_change(tmp_path: Path) -> None:
    location, source = str(write_export(tmp_path, [range(1)] * 7)), coordinator()
    source.supply(ExportSupplier(settings(location=location, files_per_partition=3), source))
    for others in (1, 2, 7):
        assert source.supply(ExportSupplier(settings(location=location, files_per_partition=others), source)) == []
    found = [source.view.get(f"{EXPORT_ID}/{number}") for number in range(3)]
    assert [len(each.progress["items"]) for each in found if each is not None] == [3, 3, 1]


@pytest.mark.parametrize(
    ("manifest", "content"),
    [("manifest-summary.json", "{"), ("manifest-summary.json", "1"), ("manifest-files.json", '{"etag": "x"}\n')],
)
def test_damaged_manifest_is_named(tmp_path: Path, manifest: str, content: str) -> None:
    location = write_export(tmp_path, [range(3)])
    (location / manifest).write_text(content)
    with pytest.raises(ConfigurationError, match=f"{manifest} is not a manifest of an export: .*; restore it"):
        partitions(settings(location=str(location)))


def test_folder_without_a_finished_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"manifest-summary.json does not exist; wait until the export is"):
        partitions(settings(location=str(tmp_path)))


@pytest.mark.parametrize(("name", "value"), [("exportType", "INCREMENTAL_EXPORT"), ("outputFormat", "ION")])
def test_unsupported_export_kind_is_refused(tmp_path: Path, name: str, value: str) -> None:
    location = write_export(tmp_path, [range(3)])
    summary = location / "manifest-summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {name: value}))
    with pytest.raises(ConfigurationError, match=f"its {name} is '{value}'"):
        partitions(settings(location=str(location)))


def test_running_export_has_no_partitions_yet() -> None:
    supplier = ExportSupplier(settings(export_arn=EXPORT_ARN), coordinator())
    AwsWire(supplier.calls.client).answer("DescribeExport", {"ExportDescription": {"ExportStatus": "IN_PROGRESS"}})
    assert list(supplier({})) == []


def test_failed_export_gives_the_reason() -> None:
    supplier = ExportSupplier(settings(export_arn=EXPORT_ARN), coordinator())
    failed = {"ExportStatus": "FAILED", "FailureCode": "S3NoSuchBucket", "FailureMessage": "no bucket"}
    AwsWire(supplier.calls.client).answer("DescribeExport", {"ExportDescription": failed})
    with pytest.raises(ExportFailedError, match="FAILED: S3NoSuchBucket no bucket; fix the cause"):
        list(supplier({}))


def test_repeated_supplier_runs_start_one_export() -> None:
    source = coordinator()
    started = {"ExportDescription": {"ExportArn": EXPORT_ARN, "ExportStatus": "IN_PROGRESS"}}
    chosen = settings(table_arn=TABLE_ARN, bucket="exports", prefix="daily", export="2026-01-31")
    requests: list[tuple[str, dict[str, Any]]] = []
    for _ in range(3):
        supplier = ExportSupplier(chosen, source)
        wire = AwsWire(supplier.calls.client)
        wire.answer("ExportTableToPointInTime", started)
        wire.answer("DescribeExport", {"ExportDescription": {"ExportStatus": "IN_PROGRESS"}})
        assert source.supply(supplier) == []
        requests += wire.requests
    [(_, start)] = [request for request in requests if request[0] == "ExportTableToPointInTime"]
    assert len(requests) == 4 and all(
        r == {"ExportArn": EXPORT_ARN} for name, r in requests if name == "DescribeExport"
    )
    assert start.pop("ClientToken") and start == {
        "TableArn": TABLE_ARN,
        "S3Bucket": "exports",
        "S3Prefix": "daily",
        "ExportFormat": "DYNAMODB_JSON",
    }


def test_missing_table_is_named() -> None:
    supplier = ExportSupplier(settings(table_arn=TABLE_ARN, bucket="exports"), coordinator())
    AwsWire(supplier.calls.client).refuse("ExportTableToPointInTime", "TableNotFoundException")
    with pytest.raises(ConfigurationError, match=r"table/orders.* does not exist"):
        list(supplier({}))


def test_export_id_is_its_folder_name(tmp_path: Path) -> None:
    chosen = settings(location=str(write_export(tmp_path, [range(1)])))
    assert list(partitions(chosen)) == [f"{EXPORT_ID}/0"]
    assert typed(1) == {"Item": {"id": {"S": "item-1"}, "n": {"N": "1"}}}
