"""The OpenLineage metadata of a job: names of datasets, rows, columns, and the job's owner."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.operators.job_results import inputs_of, lineage_of, outputs_of
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.source_kind import DatasetName, file_dataset
from airflow_provider_coordination.spark.job_settings import BadRecordSettings
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores import StoreSettings
from tests.support.job_settings import parquet, reads_of


def clicks(**aws: Any) -> ReadsSettings:
    return reads_of(KinesisStreams(streams=("clicks", "taps"), aws=AwsSettings(**aws)))


SETTINGS = IngestSettings(
    source="clicks",
    owner="owner",
    writes=(parquet("s3://lake/raw/clicks/"), parquet("/lake/large", "large", "amount > 100")),
    landing_path="/lake/_landing",
    bad_records=BadRecordSettings(dead_letter_path="/lake/dead"),
    expires_at=datetime(2026, 1, 1, tzinfo=UTC),
    store=StoreSettings.from_url("sqlite:////x.db"),
    reads=clicks(region="eu-west-1"),
)
RESULT: dict[str, Any] = {
    "owner": "host:dag:run:task",
    "partitions_delivered": 2,
    "batches_delivered": 3,
    "records_delivered": 7,
    "dead_letters": 1,
    "records_by_sink": {"main": 4, "large": 2, "dead_letter": 1},
    "columns": {"id": "string", "amount": "double"},
}


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/data/lake/clicks/", DatasetName("file", "/data/lake/clicks")),
        ("file:///data/lake", DatasetName("file", "/data/lake")),
        ("s3://lake/raw/clicks/", DatasetName("s3://lake", "raw/clicks")),
        ("s3a://lake", DatasetName("s3://lake", "/")),
        ("hdfs://name:8020/lake/clicks", DatasetName("hdfs://name:8020", "/lake/clicks")),
        ("hdfs://user:secret@name:8020/lake", DatasetName("hdfs://name:8020", "/lake")),
        ("gs://lake/clicks", DatasetName("gs://lake", "clicks")),
    ],
)
def test_files_are_named_by_filesystem_and_path(path: str, named: DatasetName) -> None:
    assert file_dataset(path) == named


def test_streams_are_named_by_host_and_name() -> None:
    assert inputs_of(SETTINGS) == [
        DatasetName("kinesis://kinesis.eu-west-1.amazonaws.com", "clicks"),
        DatasetName("kinesis://kinesis.eu-west-1.amazonaws.com", "taps"),
    ]
    local = replace(SETTINGS, reads=clicks(region="r", endpoint_url="http://user:secret@here:4567"))
    assert inputs_of(local)[0] == DatasetName("kinesis://here:4567", "clicks")


@pytest.mark.parametrize(
    ("kind", "settings", "named"),
    [
        (
            "s3",
            {"paths": ["s3://lake/raw/", "/data/in"]},
            [DatasetName("s3://lake", "raw"), DatasetName("file", "/data/in")],
        ),
        (
            "jdbc",
            {"database": {"url": "jdbc:postgresql://db:5433/shop?ssl=true"}, "table": "orders"},
            [DatasetName("postgres://db:5433", "shop.public.orders")],
        ),
        (
            "jdbc",
            {"database": {"url": "jdbc:postgresql://db/shop"}, "table": 'sales."orders"'},
            [DatasetName("postgres://db:5432", "shop.sales.orders")],
        ),
        (
            "jdbc",
            {"database": {"url": "jdbc:mysql://db/shop"}, "table": "orders"},
            [DatasetName("mysql://db:3306", "shop.orders")],
        ),
        (
            "jdbc",
            {"database": {"url": "jdbc:mysql://db/shop"}, "table": "shop.orders"},
            [DatasetName("mysql://db:3306", "shop.orders")],
        ),
        (
            "jdbc",
            {"database": {"url": "jdbc:oracle:thin:@//db:1521/x"}, "table": "orders"},
            [DatasetName("oracle://db:1521", "x.orders")],
        ),
        ("jdbc", {"database": {"url": "jdbc:sqlite:/data/x.db"}, "table": "orders"}, []),
        ("jdbc", {"database": {"url": "jdbc:postgresql://db/shop"}, "query": "SELECT 1"}, []),
        (
            "dynamodb",
            {"table": "orders", "aws": {"region": "eu-west-1"}},
            [DatasetName("dynamodb://dynamodb.eu-west-1.amazonaws.com", "orders")],
        ),
        ("dynamodb_export", {"location": "s3://lake/export/", "aws": {}}, [DatasetName("s3://lake", "export")]),
        (
            "dynamodb_export",
            {"export_arn": "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/export/0123", "aws": {}},
            [DatasetName("dynamodb://dynamodb.eu-west-1.amazonaws.com", "orders")],
        ),
        (
            "opensearch",
            {"cluster": {"hosts": ["https://u:secret@search:9200"]}, "indices": ["logs-*"]},
            [DatasetName("opensearch://search:9200", "logs-*")],
        ),
    ],
)
def test_every_kind_of_source_has_its_own_naming(kind: str, settings: dict[str, Any], named: list[DatasetName]) -> None:
    reads = ReadsSettings(kind=kind, settings=settings)
    assert inputs_of(replace(SETTINGS, reads=reads)) == named


def test_custom_source_has_no_inputs() -> None:
    own = replace(SETTINGS, reads=ReadsSettings(kind="weather", settings={"reader": "my.module:Weather"}))
    assert inputs_of(own) == []


def test_every_sink_is_an_output_with_bad_records_last() -> None:
    assert list(outputs_of(SETTINGS)) == [
        ("main", DatasetName("s3://lake", "raw/clicks")),
        ("large", DatasetName("file", "/lake/large")),
        ("dead_letter", DatasetName("file", "/lake/dead")),
    ]


@pytest.mark.integration  # needs no server, but OpenLineage's modules, and so seconds
def test_openlineage_receives_inputs_outputs_rows_columns_and_owner() -> None:
    lineage = lineage_of(SETTINGS, RESULT)
    assert [(dataset.namespace, dataset.name) for dataset in lineage.inputs] == [
        ("kinesis://kinesis.eu-west-1.amazonaws.com", "clicks"),
        ("kinesis://kinesis.eu-west-1.amazonaws.com", "taps"),
    ]
    main, large, dead = lineage.outputs
    assert [(field.name, field.type) for field in main.facets["schema"].fields] == [
        ("id", "string"), ("amount", "double"),
    ]  # fmt: skip
    rows = [output.outputFacets["outputStatistics"].rowCount for output in (main, dead, large)]
    assert rows == [4, 1, 2]
    assert dead.facets == {}
    facet = lineage.run_facets["coordination"]
    assert (facet.source, facet.owner, facet.reads) == ("clicks", "host:dag:run:task", "kinesis")
    assert (facet.partitions, facet.records, facet.deadLetters) == (2, 7, 1)


@pytest.mark.integration
def test_job_without_a_result_has_datasets_and_no_rows() -> None:
    lineage = lineage_of(SETTINGS, {})
    assert [output.outputFacets["outputStatistics"].rowCount for output in lineage.outputs] == [0, 0, 0]
    assert lineage.outputs[0].facets == {}
    assert lineage.run_facets["coordination"].owner == "owner"


def test_inputs_are_named_without_openlineage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = (
        "airflow_provider_coordination.operators.job_results",
        ("openlineage", "airflow.providers.openlineage"),
    )
    for name in [name for name in sys.modules if name.startswith((ours, *theirs))]:
        monkeypatch.delitem(sys.modules, name)
    for name in theirs:
        monkeypatch.setitem(sys.modules, name, None)
    fresh = importlib.import_module("airflow_provider_coordination.operators.job_results")
    assert fresh.inputs_of(SETTINGS)[0].name == "clicks"
    with pytest.raises(ImportError):
        fresh.lineage_of(SETTINGS, RESULT)
