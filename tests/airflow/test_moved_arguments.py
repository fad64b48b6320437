"""One error names the new place of each moved argument."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_coordination.coordination.lease_settings import LeaseSettings
from airflow_provider_coordination.operators.kinesis import KinesisShardSyncOperator
from airflow_provider_coordination.operators.moved_arguments import MOVED
from airflow_provider_coordination.operators.reads.kinesis import KinesisStreams
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.operators.writes.parquet import ParquetDataset
from airflow_provider_coordination.spark.job_settings import AcknowledgmentSettings, BadRecordSettings, RoundSettings
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

OBJECTS = {
    each.__name__: each
    for each in (
        AcknowledgmentSettings,
        BadRecordSettings,
        KinesisStreams,
        LeaseSettings,
        ParquetDataset,
        RoundSettings,
    )
}


@pytest.mark.parametrize(
    "make",
    [
        lambda **said: CoordinatedSparkSubmitOperator(task_id="ingest", **said),
        lambda **said: CoordinatedSparkSubmitOperator.partial(task_id="ingest", **said),
        coordinated_ingestion,
    ],
    ids=["operator", "mapped", "group"],
)
def test_error_names_the_new_place_of_each_argument(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError) as error:
        make(stream_name="clicks", output_path="/lake", handover_timeout=5, round_seconds=9, acknowledge="downstream")
    of, _, moved = str(error.value).partition(": ")
    assert of in ("CoordinatedSparkSubmitOperator", "coordinated_ingestion")
    assert moved.split("; ") == [
        "'stream_name' is now reads=KinesisStreams(...), from operators.reads.kinesis",
        "'output_path' is now writes=ParquetDataset(...), from operators.writes.parquet",
        "'handover_timeout' is now 'handover_timeout' of LeaseSettings, which is given as 'leases'",
        "'round_seconds' is now 'round_duration' of RoundSettings, which is given as 'rounds'",
        "'acknowledge' is now 'by' of AcknowledgmentSettings, which is given as 'acknowledgments'",
    ]


def test_shard_sync_raises_the_same_error() -> None:
    with pytest.raises(TypeError, match="KinesisShardSyncOperator: 'stream_name' is now reads=KinesisStreams"):
        KinesisShardSyncOperator(task_id="sync", stream_name="clicks")


@pytest.mark.parametrize(
    ("make", "missing"),
    [
        (lambda: CoordinatedSparkSubmitOperator(task_id="ingest", writes=ParquetDataset("/lake")), "reads"),
        (lambda: CoordinatedSparkSubmitOperator(task_id="ingest", reads=KinesisStreams("clicks")), "writes"),
        (lambda: coordinated_ingestion(writes=ParquetDataset("/lake")), "reads"),
        (lambda: coordinated_ingestion(reads=KinesisStreams("clicks")), "writes"),
        (lambda: KinesisShardSyncOperator(task_id="sync"), "reads"),
    ],
)
def test_missing_argument_error_names_its_module(make: Callable[[], Any], missing: str) -> None:
    expected = (
        f"field '{missing}' is missing; give one of the classes of airflow_provider_coordination.operators.{missing}"
    )
    with pytest.raises(ValueError, match=expected):
        make()


@pytest.mark.parametrize("name", MOVED)
def test_new_place_of_each_argument_exists(name: str) -> None:
    arguments = inspect.signature(CoordinatedSparkSubmitOperator.__init__).parameters
    assert name not in arguments
    place = MOVED[name]
    for said in re.findall(r"given as '(\w+)'|\b(reads|writes)=", place):
        assert "".join(said) in arguments
    if found := re.match(r"'(\w+)' of (\w+)", place):
        assert found[1] in {field.name for field in dataclasses.fields(OBJECTS[found[2]])}
    elif found := re.match(r"'(\w+)'$", place):
        assert found[1] in arguments
