"""The sources of a group write different tables and folders, however these are spelled."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.spark.group_targets import GroupTargets
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.sink_settings import normalized_location
from airflow_provider_coordination.spark.writes import DeltaTable, ForeachBatch, ParquetDataset, sinks_of
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable
from airflow_provider_coordination.spark.writes.sql import SqlTable
from airflow_provider_coordination.stores import StoreSettings
from tests.support.job_settings import ingest

CATALOG = {"type": "sql", "uri": "postgresql://u:p@host/catalog"}


def job(source: str, writes: Any, owner: str | None = None) -> IngestSettings:
    settings = ingest(
        source=source,
        owner=owner or f"job of {source}",
        streams=(source,),
        output="/lake",
        expires_at=datetime.now(UTC) + timedelta(hours=1),
        store=StoreSettings(kind="in_memory"),
    )
    return replace(settings, writes=tuple(sinks_of(writes, AirflowConnections())))


def table(name: str, conn_id: str = "warehouse") -> SqlTable:
    return SqlTable(table=name, conn_id=conn_id, staging_path="/staging")


@pytest.fixture(autouse=True)
def connections(connect: Any) -> None:
    connect("warehouse", "postgres", host="db", schema="shop")
    connect("the_same", "postgres", host="DB", port=5432, login="other", schema="shop")
    connect("replica", "postgres", host="db2", schema="shop")


SAME = [
    (table("events"), table("public.events")),
    (table("events"), table("events", "the_same")),
    (ParquetDataset("s3://lake/all"), ParquetDataset("s3a://lake/x/../all/")),
    (ParquetDataset("/lake/all"), DeltaTable("file:///lake//all")),
    (IcebergTable("lake.all", catalog=CATALOG), IcebergTable("lake.all", catalog={**CATALOG, "echo": True})),
]
DIFFERENT = [
    (table("events"), table("sales.events")),
    (table("events"), table("Events")),
    (table("events"), table("events", "replica")),
    (ParquetDataset("s3://lake/all"), ParquetDataset("s3://lake/all2")),
    (ForeachBatch(function="a:b", staging_path="/x"), ForeachBatch(function="a:b", staging_path="/y")),
]


@pytest.mark.parametrize(("theirs", "mine"), SAME, ids=repr)
def test_two_sources_never_write_one_target(theirs: Any, mine: Any) -> None:
    targets = GroupTargets()
    with targets.writing(job("views", theirs)), pytest.raises(ConfigurationError) as refused:
        targets.writing(job("clicks", mine)).__enter__()
    assert "is what source 'views' of the same group writes as well" in str(refused.value)
    assert "give one of them another location, or another 'group'" in str(refused.value)
    with targets.writing(job("clicks", mine)):
        """The other job has ended."""


@pytest.mark.parametrize(("theirs", "mine"), DIFFERENT, ids=repr)
def test_different_targets_are_accepted(theirs: Any, mine: Any) -> None:
    targets = GroupTargets()
    with targets.writing(job("views", theirs)), targets.writing(job("clicks", mine)):
        """Both write."""


def test_successor_writes_what_its_predecessor_writes() -> None:
    targets = GroupTargets()
    with targets.writing(job("clicks", table("events"), "first")):
        with targets.writing(job("clicks", table("events"), "second")):
            """Both write."""
        with pytest.raises(ConfigurationError, match="source 'clicks'"):
            targets.writing(job("views", table("events"))).__enter__()


@pytest.mark.parametrize(
    ("spelling", "normal"),
    [
        ("/lake/all/", "/lake/all"),
        ("//lake/all", "/lake/all"),
        ("file:/lake/all", "/lake/all"),
        ("FILE:///lake/./all", "/lake/all"),
        ("S3A://bucket/lake//all/", "s3://bucket/lake/all"),
        ("s3n://bucket/lake/x/../all", "s3://bucket/lake/all"),
        ("hdfs://name:8020/lake/all", "hdfs://name:8020/lake/all"),
        ("lake/all", "lake/all"),
    ],
)
def test_normalized_location_is_the_same_for_all_spellings(spelling: str, normal: str) -> None:
    assert normalized_location(spelling) == normal
