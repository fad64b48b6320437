"""Reading a table of DynamoDB by segments, and an export of one from S3."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.aws import Proof, prove
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.dynamodb.calls import permissions
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.dynamodb.segments import (
    FIRST_PAGE_ITEMS,
    RECORD_SCHEMA,
    SegmentReader,
    SegmentSupplier,
)
from airflow_provider_coordination.sources.dynamodb_export.files import ExportReader, ExportSupplier
from airflow_provider_coordination.sources.dynamodb_export.kind import DynamoDBExport
from airflow_provider_coordination.sources.items import (
    Item,
    ItemGoneError,
    ItemUnreadableError,
    PartitionProgress,
    ReadPage,
    SourceUnavailableError,
)
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.sources.peek import Peek, PeekLimits
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.aws_wire import AwsWire
from tests.support.dynamodb_export import FOLDER, export_objects
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.integration

LARGE = "x" * 100_000
"""Ten of these make a page."""


def create(server: DynamoDbServer, table: str, key: str = "S", sort_key: str | None = None) -> None:
    keys = [("id", "HASH", key), *([("at", "RANGE", sort_key)] if sort_key else [])]
    server.client().create_table(
        TableName=table,
        KeySchema=[{"AttributeName": name, "KeyType": role} for name, role, _ in keys],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, _, kind in keys],
        BillingMode="PAY_PER_REQUEST",
    )


def put(server: DynamoDbServer, table: str, items: list[dict[str, Any]]) -> None:
    client = server.client()
    for start in range(0, len(items), 25):
        requests = [{"PutRequest": {"Item": item}} for item in items[start : start + 25]]
        assert not client.batch_write_item(RequestItems={table: requests})["UnprocessedItems"]


def settings(server: DynamoDbServer, table: str, **changes: Any) -> DynamoDBTable:
    aws = replace(server.settings, max_attempts=2)
    return DynamoDBTable(**{"table": table, "aws": aws, **changes})


def new_coordinator() -> SourceCoordinator:
    coordinator = SourceCoordinator(InMemoryStore(), "orders", "test")
    coordinator.initialize()
    return coordinator


def items(of: DynamoDBTable) -> list[Item]:
    return [p["items"][0] for page in SegmentSupplier(of, new_coordinator())({}) for p in page.partitions.values()]


def data(pages: Iterator[ReadPage] | list[ReadPage]) -> list[Any]:
    return [json.loads(text) for page in pages for text in page.records.column("data").to_pylist()]


def test_segments_cover_a_table_without_overlap(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table, sort_key="N")
    put(dynamodb, dynamodb_table, [{"id": {"S": f"k{n}"}, "at": {"N": str(n)}} for n in range(200)])
    chosen = settings(dynamodb, dynamodb_table, segments=4)
    found = items(chosen)
    read = [each["id"] for item in found for each in data(SegmentReader(chosen).read(item, ""))]
    assert len(found) == 4 and Counter(read) == Counter(f"k{n}" for n in range(200))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("S", [f"é:{n}" for n in range(30)]),
        ("N", [f"{n}.00000000000000000000000000000000001" for n in range(1, 31)]),
        ("B", [bytes([0, 255, n]) for n in range(30)]),
    ],
)
def test_reading_resumes_at_any_page_position_and_key_type(
    dynamodb: DynamoDbServer, dynamodb_table: str, kind: str, values: list[Any]
) -> None:
    create(dynamodb, dynamodb_table, key=kind)
    put(dynamodb, dynamodb_table, [{"id": {kind: value}, "large": {"S": LARGE}} for value in values])
    chosen = settings(dynamodb, dynamodb_table)
    [item] = items(chosen)
    pages = list(SegmentReader(chosen).read(item, ""))
    keys = [key for page in pages for key in page.records.column("key").to_pylist()]
    assert len(pages) >= 3 and len(set(keys)) == 30
    for n, page in enumerate(pages[:-1]):
        rest = list(SegmentReader(chosen).read(item, page.position))
        read = [key for each in [*pages[: n + 1], *rest] for key in each.records.column("key").to_pylist()]
        assert read == keys


def test_position_survives_the_deletion_of_its_item(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    put(dynamodb, dynamodb_table, [{"id": {"S": f"k{n}"}, "large": {"S": LARGE}} for n in range(30)])
    chosen = settings(dynamodb, dynamodb_table)
    [item] = items(chosen)
    first, *others = SegmentReader(chosen).read(item, "")
    dynamodb.client().delete_item(TableName=dynamodb_table, Key=json.loads(first.position))
    assert data(SegmentReader(chosen).read(item, first.position)) == data(others)


def test_record_has_key_and_item_as_plain_json(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table, sort_key="N")
    put(dynamodb, dynamodb_table, [{"id": {"S": "k"}, "at": {"N": "1.50"}, "tags": {"SS": ["a"]}, "b": {"B": b"\xff"}}])
    chosen = settings(dynamodb, dynamodb_table)
    [page] = SegmentReader(chosen).read(items(chosen)[0], "")
    assert page.records.schema == RECORD_SCHEMA
    [record] = page.records.to_pylist()
    assert record["key"] == '{"id":"k","at":1.5}'
    assert json.loads(record["data"]) == {"id": "k", "at": 1.5, "tags": ["a"], "b": "/w=="}


def test_expressions_select_items_and_attributes(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    put(dynamodb, dynamodb_table, [{"id": {"S": f"k{n}"}, "size": {"N": str(n)}} for n in range(10)])
    chosen = settings(
        dynamodb,
        dynamodb_table,
        filter_expression="#size >= :min",
        projection_expression="id",
        expression_attribute_names={"#size": "size"},
        expression_attribute_values={":min": {"N": "8"}},
        consistent_read=True,
    )
    read = data(SegmentReader(chosen).read(items(chosen)[0], ""))
    assert sorted(each["id"] for each in read) == ["k8", "k9"] and all(list(each) == ["id"] for each in read)


def test_refused_expression_is_a_configuration_error(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    chosen = settings(dynamodb, dynamodb_table, filter_expression="size >=")
    with pytest.raises(ConfigurationError, match="FilterExpression"):
        list(SegmentReader(chosen).read(items(chosen)[0], ""))


def test_reading_respects_its_limit_of_read_units(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    put(dynamodb, dynamodb_table, [{"id": {"S": f"k{n}"}, "text": {"S": "x" * 4000}} for n in range(400)])
    chosen = settings(dynamodb, dynamodb_table, segments=2, read_units_per_second=20.0)
    pauses: list[float] = []
    reader = SegmentReader(chosen, sleep=pauses.append)
    wire = AwsWire(reader.calls.client)
    read = sum(len(data(reader.read(item, ""))) for item in items(chosen))
    limits = [request["Limit"] for name, request in wire.requests if name == "Scan"]
    assert read == 400 and limits[0] == FIRST_PAGE_ITEMS
    assert 4.8 <= pauses[0] <= 5.2  # 100 items of 4 KB are about 50 units, and this segment has 10 a second
    assert all(0.8 <= pause <= 1.1 for pause in pauses[1:3]) and 18 <= limits[1] <= 22


def test_throttling_is_retried_and_then_reported_as_unavailable(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    put(dynamodb, dynamodb_table, [{"id": {"S": "k"}}])
    chosen = settings(dynamodb, dynamodb_table)
    [item] = items(chosen)
    reader = SegmentReader(chosen)
    wire = AwsWire(reader.calls.client)
    wire.refuse("Scan", "ProvisionedThroughputExceededException")
    assert data(reader.read(item, "")) == [{"id": "k"}]
    wire.refuse("Scan", "ProvisionedThroughputExceededException", times=2)
    with pytest.raises(SourceUnavailableError, match=r"throttled after every retry: .*lower read_units_per_second"):
        list(reader.read(item, ""))


def test_refused_access_names_the_permission(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    chosen = settings(dynamodb, dynamodb_table)
    [item] = items(chosen)
    reader = SegmentReader(chosen)
    AwsWire(reader.calls.client).refuse("Scan", "AccessDeniedException")
    with pytest.raises(ConfigurationError, match=r"access denied: .*allow dynamodb:Scan"):
        list(reader.read(item, ""))


def test_kind_tests_the_permissions_without_harm(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    _, needed = permissions(dynamodb_table, lambda service: dynamodb.settings)
    proofs = {each.action: each.call is not None and prove(each.call)[0] for each in needed}
    assert proofs == {"dynamodb:DescribeTable": Proof.ALLOWED, "dynamodb:Scan": Proof.ALLOWED}
    assert {each.resource.rpartition("/")[2] for each in needed} == {dynamodb_table}


def test_missing_table_fails_the_supplier_and_ends_no_reading(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    chosen = settings(dynamodb, dynamodb_table)
    [item] = items(chosen)
    dynamodb.client().delete_table(TableName=dynamodb_table)
    message = f"DynamoDB table '{dynamodb_table}' in region us-east-1 at http.* does not exist; check its name"
    with pytest.raises(ConfigurationError, match=message):
        items(chosen)
    with pytest.raises(ConfigurationError, match=message):
        list(SegmentReader(chosen).read(item, ""))


def test_recreated_table_is_another_one(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    chosen = settings(dynamodb, dynamodb_table)
    [item] = items(chosen)
    dynamodb.client().delete_table(TableName=dynamodb_table)
    create(dynamodb, dynamodb_table)
    with pytest.raises(ItemGoneError, match="another table has its name"):
        list(SegmentReader(chosen).read(item, ""))


def test_scan_keeps_its_segments_and_a_new_scan_rereads(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    coordinator = new_coordinator()

    def created(**changes: Any) -> list[str] | None:
        return coordinator.supply(SegmentSupplier(settings(dynamodb, dynamodb_table, **changes), coordinator))

    assert len(created(segments=3) or []) == 3
    assert created(segments=5) == []
    assert len(created(segments=5, scan="2026-01-31") or []) == 5


def test_segment_read_at_an_interval_restarts_count_times(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    chosen = settings(dynamodb, dynamodb_table, interval=timedelta(minutes=1), count=3)
    [page] = SegmentSupplier(chosen, new_coordinator())({})
    [progress] = map(PartitionProgress.from_mapping, page.partitions.values())
    assert (progress.reread_seconds, progress.reads_left) == (60.0, 2)


def test_reader_can_be_pickled_after_use(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    put(dynamodb, dynamodb_table, [{"id": {"S": "k"}}])
    chosen = settings(dynamodb, dynamodb_table)
    [item] = items(chosen)
    reader = SegmentReader(chosen)
    list(reader.read(item, ""))
    assert data(pickle.loads(pickle.dumps(reader)).read(item, "")) == [{"id": "k"}]


def test_export_in_s3_is_found_and_read(s3: S3Server, s3_bucket: str) -> None:
    chosen = export_settings(s3, upload_export(s3, s3_bucket, [range(3), range(3, 7)]))
    found = export_items(chosen)
    assert len(found) == 2
    read = [each["n"] for item in found for each in data(ExportReader(chosen).read(item, ""))]
    assert read == list(range(7))


def test_file_replaced_since_the_export_is_not_read(s3: S3Server, s3_bucket: str) -> None:
    chosen = export_settings(s3, upload_export(s3, s3_bucket, [range(3)]))
    [item] = export_items(chosen)
    s3.client().put_object(Bucket=s3_bucket, Key=item["uri"].partition(f"{s3_bucket}/")[2], Body=b"other")
    with pytest.raises(ItemUnreadableError, match="is not the file that the export wrote"):
        list(ExportReader(chosen).read(item, ""))


def test_copied_export_is_read_despite_other_etags(s3: S3Server, s3_bucket: str) -> None:
    client = s3.client()
    for key, content in export_objects([range(3), range(3, 5)], bucket="written-elsewhere").items():
        client.put_object(Bucket=s3_bucket, Key=f"copies/{key}", Body=content)
    chosen = export_settings(s3, f"s3://{s3_bucket}/copies/{FOLDER}")
    reader = ExportReader(chosen)
    assert [each["n"] for item in export_items(chosen) for each in data(reader.read(item, ""))] == list(range(5))


def upload_export(server: S3Server, bucket: str, files: list[range]) -> str:
    client, etags = server.client(), []
    for key, content in export_objects(files, bucket=bucket, prefix="daily").items():
        if "/data/" in key:
            etags.append(client.put_object(Bucket=bucket, Key=key, Body=content)["ETag"].strip('"'))
    for key, content in export_objects(files, bucket=bucket, prefix="daily", etags=etags).items():
        if "/data/" not in key:
            client.put_object(Bucket=bucket, Key=key, Body=content)
    return f"s3://{bucket}/daily/{FOLDER}"


def export_settings(server: S3Server, location: str) -> DynamoDBExport:
    return DynamoDBExport(location=location, aws=server.settings, s3=server.settings)


def export_items(of: DynamoDBExport) -> list[Item]:
    pages = ExportSupplier(of, new_coordinator())({})
    return [item for page in pages for p in page.partitions.values() for item in p["items"]]


def test_preview_reads_few_items_without_a_trace(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    create(dynamodb, dynamodb_table)
    empty, full = Peek(PeekLimits()), Peek(PeekLimits(records=3))
    reads = settings(dynamodb, dynamodb_table, segments=2)

    def peek(into: Peek) -> None:
        kind = get_kind("dynamodb")
        own = reads.to_mapping()
        kind.peek(kind.service(own), own, into, lambda coordinator: SegmentSupplier(reads, coordinator))

    peek(empty)
    assert (empty.records, empty.nothing) == ([], "the first 2 items have no record; check what is read")
    put(dynamodb, dynamodb_table, [{"id": {"S": str(number)}} for number in range(200)])
    peek(full)
    assert [json.loads(record["data"])["id"] == json.loads(record["key"])["id"] for record in full.records] == [
        True
    ] * 3
    assert list(full.columns) == ["_origin", *RECORD_SCHEMA.names]
