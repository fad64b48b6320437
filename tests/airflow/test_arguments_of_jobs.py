"""Operators refuse unknown and missing arguments when a DAG is parsed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion
from tests.support.ingestions import with_ingestion

PARTS: dict[str, Any] = {"reads": KinesisStreams("clicks"), "writes": ParquetDataset("/data/lake/clicks")}
JOB = with_ingestion(PARTS)


def group(**arguments: Any) -> None:
    with DAG("ingest", schedule=None):
        coordinated_ingestion(**arguments)


@pytest.mark.parametrize(
    "make",
    [
        lambda **arguments: CoordinatedSparkSubmitOperator(task_id="ingest", **JOB, **arguments),
        lambda **arguments: CoordinatedSparkSubmitOperator.partial(task_id="ingest", **JOB, **arguments),
        lambda **arguments: group(**JOB, **arguments),
        lambda **arguments: ShardSyncOperator(task_id="sync", reads=PARTS["reads"], **arguments),
    ],
    ids=["operator", "mapped", "group", "shard sync"],
)
def test_unknown_argument_is_refused_by_name(make: Any) -> None:
    with pytest.raises(TypeError, match="stream_name"):
        make(stream_name="clicks")


@pytest.mark.parametrize("missing", ["reads", "writes"])
def test_missing_part_of_an_ingestion_is_refused_by_name(missing: str) -> None:
    with pytest.raises(TypeError, match=f"missing .*'{missing}'"):
        Ingestion(**{name: value for name, value in PARTS.items() if name != missing})


@pytest.mark.parametrize("make", [lambda **arguments: CoordinatedSparkSubmitOperator(task_id="a", **arguments), group])
def test_missing_ingestion_is_refused_by_name(make: Any) -> None:
    with pytest.raises(TypeError, match=r"missing .*'?ingestion'?"):
        make()
    with pytest.raises(ConfigurationError, match=r"field 'ingestion' must be an Ingestion, such as .*; got KinesisStr"):
        make(ingestion=PARTS["reads"])


@pytest.mark.parametrize("missing", ["reads", "writes"])
def test_argument_of_none_names_what_to_give(missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"field '{missing}' is None; give a "):
        CoordinatedSparkSubmitOperator(task_id="ingest", **with_ingestion({**PARTS, missing: None}))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("per_batch", "perhaps", "field 'per_batch' must be true or false; got 'perhaps'"),
        ("rounds", 5, "field 'rounds' must be of the class RoundSettings; got 5"),
        ("leases", {"max_leases": 3}, "field 'leases' must be of the class LeaseSettings; got {'max_leases': 3}"),
        ("acknowledgments", "downstream", "must be of the class AcknowledgmentSettings; got 'downstream'"),
        ("bad_records", "/lake/bad", "must be of the class BadRecordSettings; got '/lake/bad'"),
    ],
)
def test_option_of_a_wrong_type_is_refused_when_parsed(option: str, value: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^Ingestion: .*{re.escape(message)}$"):
        CoordinatedSparkSubmitOperator(task_id="ingest", **with_ingestion({**PARTS, option: value}))


@pytest.mark.parametrize("option", ["rounds", "leases", "bad_records", "source", "schema"])
def test_option_of_none_has_its_default(option: str) -> None:
    assert Ingestion(**PARTS, **{option: None}).options() == Ingestion(**PARTS).options()
