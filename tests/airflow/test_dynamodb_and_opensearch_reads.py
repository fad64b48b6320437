"""`DynamoDBTable`, `DynamoDBExport` and `OpenSearchIndices` are resolved with their connections."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.dynamodb.segments import SegmentReader
from airflow_provider_coordination.sources.dynamodb_export.files import ExportReader
from airflow_provider_coordination.sources.dynamodb_export.kind import DynamoDBExport
from airflow_provider_coordination.sources.kinds import reader_of
from airflow_provider_coordination.sources.opensearch.kind import OpenSearchIndices
from airflow_provider_coordination.sources.opensearch.slices import SliceReader
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.task_groups.ingestion import creating_operator
from tests.airflow.conftest import REPOSITORY
from tests.support.airflow_dags import DagBag

SECRET = "never-to-be-seen-4711"
TABLE_ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"


@pytest.fixture
def aws(connect: Any) -> None:
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra={"region_name": "eu-west-1"})


def settings_of(reads: Any) -> Any:
    """Return the settings of the reader, as they travel."""
    return json.loads(json.dumps(reads.connect(AirflowConnections()).reads.settings))


def test_table_becomes_settings_for_its_reader(aws: None) -> None:
    reads = DynamoDBTable(
        table="orders",
        segments="4",
        scan="2026-01-31",
        consistent_read="true",
        read_units_per_second="50",
        interval=timedelta(hours=1),
        count="3",
        expression_attribute_values={":min": {"N": "1"}},
    )
    settings = settings_of(reads)
    assert isinstance(reader_of(reads.connect(AirflowConnections()).reads), SegmentReader)
    assert settings["aws"]["access_key_id"] == "AKIA" and settings["aws"]["region"] == "eu-west-1"
    given = ("segments", "scan", "consistent_read", "read_units_per_second", "interval", "count")
    assert [settings[name] for name in given] == [4, "2026-01-31", True, 50.0, "PT3600.000000S", 3]


def test_empty_template_result_counts_as_not_given(aws: None) -> None:
    reads = DynamoDBTable(table="orders", segments="None", scan="", read_units_per_second="None", interval="", count="")
    settings = settings_of(reads)
    given = ("segments", "scan", "read_units_per_second", "interval", "count")
    assert [settings[name] for name in given] == [None] * 5


def test_export_uses_the_endpoints_of_dynamodb_and_s3(connect: Any) -> None:
    services = {"dynamodb": {"endpoint_url": "http://dynamodb"}, "s3": {"endpoint_url": "http://s3"}}
    connect("aws_default", "aws", extra={"region_name": "eu-west-1", "service_config": services})
    reads = DynamoDBExport(table_arn=TABLE_ARN, bucket="exports")
    settings = settings_of(reads)
    assert isinstance(reader_of(reads.connect(AirflowConnections()).reads), ExportReader)
    assert (settings["aws"]["endpoint_url"], settings["s3"]["endpoint_url"]) == ("http://dynamodb", "http://s3")


@pytest.mark.parametrize(
    ("fields", "hosts"),
    [
        ({"host": "search.example.com"}, ["https://search.example.com:9200"]),
        ({"host": "a, b", "port": 9443}, ["https://a:9443", "https://b:9443"]),
        ({"host": "a", "schema": "http"}, ["http://a:9200"]),
        ({"host": "a", "extra": {"use_ssl": False}}, ["http://a:9200"]),
        ({"host": "http://a:1,https://b:2"}, ["http://a:1", "https://b:2"]),
        ({"host": "a", "extra": {"aws_conn_id": "aws_default"}}, ["https://a:443"]),
    ],
)
def test_connection_names_the_nodes_of_a_cluster(
    connect: Any, aws: None, fields: dict[str, Any], hosts: list[str]
) -> None:
    connect("opensearch_default", "opensearch", **fields)
    assert settings_of(OpenSearchIndices(indices="logs-*"))["cluster"]["hosts"] == hosts


def test_indices_become_settings_for_their_reader(connect: Any) -> None:
    extra = {"verify_certs": False, "ca_certs": "/etc/ca.pem"}
    connect("opensearch_default", "opensearch", host="a", login="me", password=SECRET, extra=extra)
    reads = OpenSearchIndices(indices=["a-*", "b"], exclude="a-old", slices="4", query={"match_all": {}}, interval=60)
    settings = settings_of(reads)
    assert isinstance(reader_of(reads.connect(AirflowConnections()).reads), SliceReader)
    cluster = settings["cluster"]
    assert (cluster["user"], cluster["password"], cluster["aws"]) == ("me", SECRET, None)
    assert (cluster["verify_certificates"], cluster["ca_certificates"]) == (False, "/etc/ca.pem")
    assert (settings["indices"], settings["exclude"], settings["slices"]) == (["a-*", "b"], ["a-old"], 4)
    assert SECRET not in repr(reads.connect(AirflowConnections()))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "its host is empty"),
        ({"host": "a", "extra": {"verify": False}}, "unknown field 'verify' in its extra"),
        ({"host": "a", "extra": {"verify_certs": "no"}}, "'verify_certs' must be true or false"),
        ({"host": "a", "login": "me"}, "'user' and 'password' must be given together"),
    ],
)
def test_unsuitable_connection_is_named_with_the_remedy(connect: Any, fields: dict[str, Any], says: str) -> None:
    connect("opensearch_default", "opensearch", **fields)
    with pytest.raises(ConfigurationError, match=says):
        OpenSearchIndices(indices="logs-*").connect(AirflowConnections())


def test_undefined_connection_is_named() -> None:
    with pytest.raises(ConfigurationError, match="OpenSearch connection 'nowhere' is not defined; create it"):
        OpenSearchIndices(indices="logs-*", opensearch_conn_id="nowhere").connect(AirflowConnections())


@pytest.mark.parametrize(
    ("reads", "source", "reads_from"),
    [
        (DynamoDBTable(table="orders", scan="a"), "dynamodb-orders", {"table": "orders", "region_name": None}),
        (DynamoDBTable(table="orders", source="mine"), "mine", {"table": "orders", "region_name": None}),
        (
            DynamoDBTable("orders", follow=True, region_name="eu-west-1"),
            "dynamodb-orders",
            {"tables": ["orders"], "region": "eu-west-1", "items_first": True},
        ),
        (DynamoDBExport(table_arn=TABLE_ARN, bucket="b"), "dynamodb-export-orders", {"table_arn": TABLE_ARN}),
        (DynamoDBExport(location="s3://b/AWSDynamoDB/0169-2d8/"), "dynamodb-export-0169-2d8", {}),
        (
            OpenSearchIndices(indices=["b", "a-*"]),
            "opensearch-b,a-*",
            {"opensearch_conn_id": "opensearch_default", "indices": ["a-*", "b"]},
        ),
    ],
)
def test_source_has_a_name_and_reports_its_location(reads: Any, source: str, reads_from: Any) -> None:
    assert (reads.default_source, reads.reads_from) == (source, reads_from)


@pytest.mark.parametrize("name", ["dynamodb_ingestion", "opensearch_ingestion"])
def test_examples_are_dags(name: str) -> None:
    bag = DagBag(str(REPOSITORY / "dags" / f"{name}.py"))
    assert bag.import_errors == {} and bag.dags[name].catchup is False


def test_followed_table_has_one_operator_for_items_and_shards() -> None:
    reads = DynamoDBTable("orders", follow=True)
    assert creating_operator(reads) is ShardSyncOperator
    assert creating_operator(DynamoDBTable("orders")) is CreatePartitionsOperator
    assert ShardSyncOperator(task_id="sync", reads=reads).reads == reads
    with pytest.raises(ValueError, match="of kind 'dynamodb', without shards; use CreatePartitionsOperator"):
        ShardSyncOperator(task_id="sync", reads=DynamoDBTable("orders"))


def test_followed_table_must_be_known_when_a_dag_is_parsed() -> None:
    with pytest.raises(ConfigurationError, match=r"'follow' must be true or false; got '\{\{ params.follow \}\}'"):
        ShardSyncOperator(task_id="sync", reads=DynamoDBTable("orders", follow="{{ params.follow }}"))  # type: ignore[arg-type]


def test_followed_table_connects_to_both_services(connect: Any) -> None:
    services = {
        "dynamodb": {"endpoint_url": "http://tables"},
        "dynamodbstreams": {"endpoint_url": "http://streams"},
    }
    connect("aws_default", "aws", extra={"region_name": "eu-west-1", "service_config": services})
    read = DynamoDBTable("orders", follow=True, segments=3).connect(AirflowConnections()).reads
    assert (read.kind, read.settings["aws"]["endpoint_url"]) == ("dynamodb_streams", "http://streams")
    assert read.settings["items"]["aws"] == read.settings["table_aws"]
    assert (read.settings["items"]["segments"], read.settings["table_aws"]["endpoint_url"]) == (3, "http://tables")
    assert (read.settings["view_type"], read.settings["initial_position"]) == ("NEW_IMAGE", "LATEST")


def test_spec_takes_a_followed_table() -> None:
    given = {"dynamodb": {"table": "orders", "follow": True}}
    spec = IngestionSpec.read({"version": 1, "reads": given, "writes": {"parquet": {"path": "/data/orders"}}})
    reads = spec.ingestion.reads
    assert (reads.kind, reads.is_endless, reads.is_synced, spec.source) == (
        "dynamodb_streams",
        True,
        True,
        "dynamodb-orders",
    )
    assert IngestionSpec.read(spec.to_mapping()).ingestion.reads == reads
    assert not spec.job_ingestion().rounds.until_caught_up
