"""The probes of a supervisor use Airflow's connections."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.hooks import supervision
from airflow_provider_coordination.hooks.supervision import SourceProbe
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from tests.airflow.conftest import SECRET, FakeKinesis
from tests.support.dynamodb_server import REGION, DynamoDbServer
from tests.support.waiting import PATIENCE_SECONDS

WRITES = [{"parquet": {"path": "/lake/clicks"}}]


@pytest.fixture(autouse=True)
def connections(connect: Any, kinesis: FakeKinesis) -> None:
    kinesis.streams["clicks"] = ["shardId-000000000000", "shardId-000000000001"]
    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra=extra)


@pytest.fixture
def probe(coordination: SourceCoordinator) -> SourceProbe:
    return SourceProbe(coordination)


def spec(**reads: Any) -> IngestionSpec:
    return IngestionSpec.read({"version": 1, "source": "clicks", "reads": reads, "writes": WRITES})


def test_probe_without_a_spec_sends_no_request(probe: SourceProbe, kinesis: FakeKinesis) -> None:
    probe.discover_partitions()

    assert (probe.count(), probe.must_discover_partitions, kinesis.requests) == (None, False, [])


def test_stream_reports_its_open_shard_count(probe: SourceProbe) -> None:
    probe.follow(spec(kinesis={"streams": "clicks"}))

    assert probe.count() == 2


def test_partition_discovery_of_a_stream_is_shard_sync(probe: SourceProbe, coordination: SourceCoordinator) -> None:
    probe.follow(spec(kinesis={"streams": "clicks"}))
    probe.discover_partitions()

    keys = [partition.partition_key.rpartition(":")[2] for partition in coordination.view.partitions()]
    assert keys == ["shardId-000000000000", "shardId-000000000001"]
    assert not probe.must_discover_partitions  # from here on jobs do


def test_unread_shards_are_queried_for_their_lag(probe: SourceProbe, coordination: SourceCoordinator) -> None:
    probe.follow(spec(kinesis={"streams": "clicks"}))
    probe.discover_partitions()
    partitions = list(coordination.view.partitions())

    assert [probe.lag(partition) for partition in partitions] == [0, 0]


def test_refusal_is_lost_contact_and_names_the_remedy(probe: SourceProbe) -> None:
    probe.follow(spec(kinesis={"streams": "elsewhere"}))

    for ask in (probe.count, probe.discover_partitions):
        with pytest.raises(SourceError, match="'elsewhere' does not exist in region eu-west-1"):
            ask()


def test_corrected_connection_is_used_by_the_next_query(probe: SourceProbe, connect: Any, kinesis: FakeKinesis) -> None:
    connect("aws_default", "aws", extra={"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:1"})
    probe.follow(spec(kinesis={"streams": "clicks"}))
    with pytest.raises(SourceError):
        probe.count()

    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra=extra)
    assert probe.count() == 2


def test_hanging_stream_is_lost_contact_until_it_responds(
    probe: SourceProbe, kinesis: FakeKinesis, coordination: SourceCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "MIN_RESPONSE_TIME", timedelta(milliseconds=200))
    monkeypatch.setattr(supervision, "MAX_RESPONSE_TIME", timedelta(milliseconds=200))
    probe.follow(spec(kinesis={"streams": "clicks"}))
    probe.discover_partitions()
    answers, partitions = kinesis.answer, list(coordination.view.partitions())
    resumed = threading.Event()

    def hung(operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        resumed.wait(PATIENCE_SECONDS)
        return answers(operation, request)

    monkeypatch.setattr(kinesis, "answer", hung)
    with pytest.raises(SourceError, match=r"the source did not respond within 0\.2 s"):
        probe.lag(partitions[0])
    with pytest.raises(SourceError, match="still not responded to an earlier request"):
        probe.count()

    resumed.set()
    while True:
        with suppress(SourceError):
            assert probe.count() == 2
            break


def test_supervisor_must_discover_partitions_of_items(probe: SourceProbe) -> None:
    probe.follow(spec(s3={"paths": "s3://inbox/clicks/", "format": "json"}))

    assert (probe.must_discover_partitions, probe.count()) == (True, None)


@pytest.mark.integration
def test_followed_table_is_discovered_counted_and_queried(
    probe: SourceProbe, coordination: SourceCoordinator, dynamodb: DynamoDbServer, dynamodb_table: str, connect: Any
) -> None:
    extra = {"region_name": REGION, "endpoint_url": dynamodb.endpoint_url}
    connect("aws_default", "aws", login="test", password="test", extra=extra)
    given = spec(dynamodb={"table": dynamodb_table, "follow": True})
    probe.follow(given)
    assert not probe.must_discover_partitions
    table = {
        "TableName": dynamodb_table,
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    client = dynamodb.client()
    client.create_table(**table)
    with pytest.raises(ConfigurationError, match=r"'reads\.dynamodb': .*aws dynamodb update-table"):
        supervision.check_against_source(given)
    stream = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    client.update_table(TableName=dynamodb_table, StreamSpecification=stream)
    client.put_item(TableName=dynamodb_table, Item={"id": {"S": "a"}})
    supervision.check_against_source(given)
    probe.discover_partitions()
    history, shard = sorted(coordination.view.partitions(), key=lambda each: each.partition_key)
    assert (history.progress["kind"], shard.progress["kind"]) == ("dynamodb", "dynamodb_streams")
    assert (probe.count(), probe.lag(history)) == (1, None)
    lag = probe.lag(shard)
    assert lag is not None and lag >= 0
