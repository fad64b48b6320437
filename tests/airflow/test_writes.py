"""Sinks in a DAG: one class a kind, one or several in a task, and errors in the DAG's terms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.reads import own_copy
from airflow_provider_coordination.spark.sink_settings import SinkSettings, access_of
from airflow_provider_coordination.spark.sinks import GROUP
from airflow_provider_coordination.spark.writes import (
    DeltaTable,
    ForeachBatch,
    ParquetDataset,
    Writes,
    landing_path_of,
    sinks_of,
)
from airflow_provider_coordination.spark.writes.sql import SqlTable
from tests.support.distributions import install

CLICKS = ParquetDataset("/data/lake/clicks")


@dataclass
class QueueSink(Writes):
    """A sink of another distribution, which is no folder."""

    folder_field: ClassVar[str] = ""

    topic: str

    def connect(self, connections: ConnectionResolver) -> SinkSettings:
        return SinkSettings(name="queue", kind="queue", location=f"queue://{self.topic}", settings={"token": "hush"})


def test_dataset_is_a_sink_at_its_path() -> None:
    [sink] = sinks_of(CLICKS, AirflowConnections())
    assert (sink.name, sink.kind, sink.location, sink.files) == ("main", "parquet", "/data/lake/clicks", None)


def test_several_datasets_keep_their_order_names_and_predicates() -> None:
    large = ParquetDataset("/data/lake/large", name="large", where="amount > 100")
    sinks = sinks_of([large, CLICKS], AirflowConnections())
    assert [(sink.name, sink.where) for sink in sinks] == [
        ("large", "amount > 100"),
        ("main", None),
    ]


def test_s3_dataset_uses_its_connection_and_shows_no_secret(connect: Any) -> None:
    connect("lake", "aws", login="AKIA", password="hush-hush", extra={"region_name": "eu-west-1"})
    dataset = ParquetDataset("s3://lake/clicks", aws_conn_id="lake")
    [sink] = sinks_of(dataset, AirflowConnections())
    assert sink.aws == AwsSettings(region="eu-west-1", access_key_id="AKIA", secret_access_key="hush-hush")
    assert "hush" not in repr(sink) + repr(dataset)


@pytest.mark.parametrize(
    "writes",
    [
        SqlTable(table="clicks", conn_id="warehouse", staging_path="s3://lake/staging", aws_conn_id="lake"),
        ForeachBatch(function="publishing:to_kafka", staging_path="s3://lake/staging", aws_conn_id="lake"),
    ],
    ids=repr,
)
def test_staged_rows_on_s3_use_the_connection_of_their_sink(writes: Any, connect: Any) -> None:
    connect("lake", "aws", login="AKIA", password="hush-hush", extra={"region_name": "eu-west-1"})
    connect("warehouse", "postgres", host="db", schema="shop")
    access = access_of(sinks_of(writes, AirflowConnections()))
    assert access.of("s3://lake/staging/x") == AwsSettings(
        region="eu-west-1", access_key_id="AKIA", secret_access_key="hush-hush"
    )


def test_dataset_is_checked_without_its_connection() -> None:
    ParquetDataset("s3://lake/clicks", aws_conn_id="not there").check()


@pytest.mark.parametrize(
    ("writes", "landing_path"),
    [
        (CLICKS, "/data/lake/clicks/_landing"),
        (ParquetDataset("s3://lake/clicks/"), "s3://lake/clicks/_landing"),
        ([QueueSink("clicks"), CLICKS], "/data/lake/clicks/_landing"),
    ],
)
def test_raw_batches_are_staged_beside_the_first_folder_sink(writes: Any, landing_path: str) -> None:
    assert landing_path_of(writes) == landing_path


def test_raw_batches_without_a_place_name_the_missing_field() -> None:
    with pytest.raises(ConfigurationError, match=r"^field 'landing_path' is missing, and no sink in field 'writes' is"):
        landing_path_of(QueueSink("clicks"))


@pytest.mark.parametrize(
    ("writes", "message"),
    [
        (
            ParquetDataset(""),
            "^ParquetDataset 'main': field 'path' is missing$",
        ),
        (
            ParquetDataset(" ", name="copy"),
            "^ParquetDataset 'copy': field 'path' must not be empty; give the path or URI",
        ),
        (
            ParquetDataset("/a", aws_conn_id="lake"),
            r"^ParquetDataset 'main': field 'aws_conn_id' must be left out: 'path' is '/a', which is not on S3",
        ),
        (
            SqlTable(table="a", conn_id="b", staging_path="/a", aws_conn_id="lake"),
            r"^SqlTable 'main': field 'aws_conn_id' must be left out: 'staging_path' is '/a', which is not on S3",
        ),
        (
            ForeachBatch(function="a:b", staging_path="/a", aws_conn_id="lake"),
            r"^ForeachBatch 'main': field 'aws_conn_id' must be left out: 'staging_path' is '/a', which is not on S3",
        ),
        (
            ParquetDataset("/a", where=" "),
            "^ParquetDataset 'main': field 'where' must not be empty; leave it out; got ' '$",
        ),
        (
            [],
            r"^field 'writes' must not be empty; give at least one sink, such as ParquetDataset",
        ),
        ("/data/lake", r"^field 'writes' must be a sink of 'spark\.writes', such as .*; got '/data/lake'$"),
        (None, r"^field 'writes' must be a sink .*; got None$"),
        ([CLICKS, "/data"], r"^field 'writes', number 2, must be a sink of .*; got '/data'$"),
        ([CLICKS, {"path": "/data"}], r"^field 'writes', number 2, must be a sink of .*; got \{'path': '/data'\}$"),
    ],
)
def test_invalid_sink_is_refused_in_terms_of_the_dag(writes: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        sinks_of(writes, AirflowConnections())


def test_repr_is_the_same_at_every_parse() -> None:
    assert repr(ParquetDataset("/a", name="b")) == repr(ParquetDataset("/a", name="b"))
    assert "0x" not in repr(CLICKS)


def test_each_try_renders_its_own_copies() -> None:
    given = [ParquetDataset("{{ ds }}"), ParquetDataset("/copy", name="copy")]
    copies = own_copy(given)
    copies[0].path = "/rendered"
    assert given[0].path == "{{ ds }}" and copies == [ParquetDataset("/rendered"), given[1]]


# Delta tables


def test_delta_table_in_a_folder_needs_no_connection() -> None:
    [sink] = sinks_of(
        DeltaTable("/data/lake/clicks", partition_by=["day"], columns={"n": "long"}), AirflowConnections()
    )
    assert (sink.name, sink.kind, sink.location) == ("main", "delta", "/data/lake/clicks")
    described = DeltaTable.from_mapping(sink.settings)
    assert (described.partition_by, described.columns) == (("day",), {"n": "long"})


def test_delta_table_can_be_merged_into() -> None:
    [sink] = sinks_of(DeltaTable("/data/lake/clicks", merge_on="id", order_by="at"), AirflowConnections())
    described = DeltaTable.from_mapping(sink.settings)
    assert (described.merge_on, described.order_by) == (("id",), "at")


def test_s3_delta_table_uses_its_connection_and_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", "aws://key:hush@/?region_name=eu-west-1&endpoint_url=http%3A%2F%2Fs3.test")
    [sink] = sinks_of(DeltaTable("s3://lake/clicks", aws_conn_id="lake"), AirflowConnections())
    aws = sink.aws
    assert aws is not None
    assert (aws.access_key_id, aws.secret_access_key, aws.region) == ("key", "hush", "eu-west-1")
    assert aws.endpoint_url == "http://s3.test"
    assert "hush" not in repr(sink)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (DeltaTable(" "), "^DeltaTable 'main': field 'path' must not be empty; give the path or URI of a folder"),
        (DeltaTable("/a", where=" "), "^DeltaTable 'main': field 'where' must not be empty; leave it out; got ' '$"),
        (
            DeltaTable("/a", merge_on=["id", "id"]),
            r"^DeltaTable 'main': field 'merge_on' must name each value once; got \['id', 'id'\]",
        ),
        (DeltaTable("/a", merge_on=[" "]), r"^DeltaTable 'main': field 'merge_on' must name columns .* got \[' '\]"),
        (DeltaTable("/a", order_by="at"), "^DeltaTable 'main': field 'order_by' needs 'merge_on'"),
        (DeltaTable("/a", partition_by=[""]), "^DeltaTable 'main': field 'partition_by' must name columns"),
        (
            DeltaTable("/a", name="x", columns={"n": "int64"}),
            "^DeltaTable 'x': field 'columns.n' must be one of string, long, .*; got 'int64'",
        ),
        (DeltaTable("/a", columns=["n"]), "^DeltaTable 'main': field 'columns' must be a JSON object"),  # type: ignore[arg-type]
    ],
)
def test_invalid_delta_table_field_is_named(table: DeltaTable, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        table.connect(AirflowConnections())


# Kinds of other distributions


def test_unregistered_kind_is_refused_before_spark_starts() -> None:
    with pytest.raises(ConfigurationError, match=r"^kind of sink 'queue' is not known; the known names are '"):
        sinks_of(QueueSink("clicks"), AirflowConnections())


def test_kind_of_another_distribution_ships_with_its_implementation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "queues", GROUP, {"queue": "their.sinks:QUEUE"})
    monkeypatch.syspath_prepend(str(tmp_path))
    [sink] = sinks_of(QueueSink("clicks"), AirflowConnections())
    assert (sink.kind, sink.implementation) == ("queue", "their.sinks:QUEUE")
    assert "hush" not in repr(sink)
