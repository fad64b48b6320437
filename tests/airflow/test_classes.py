"""Rules that every operator, every sensor and every example DAG keeps."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, BaseOperator

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.operators import supervisor
from airflow_provider_coordination.operators.acknowledge import AcknowledgeOperator
from airflow_provider_coordination.operators.audit import AuditOperator
from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.interval_events import IntervalCompleteOperator
from airflow_provider_coordination.operators.maintain_table import MaintainTableOperator
from airflow_provider_coordination.operators.partitions import ReleasePartitionsOperator, ResetPartitionsOperator
from airflow_provider_coordination.operators.prepared_jobs import FollowJobOperator
from airflow_provider_coordination.operators.reopen_partitions import ReopenPartitionsOperator
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.operators.supervise import SuperviseOperator
from airflow_provider_coordination.operators.supervisor import (
    ListSupervisorsOperator,
    SubmitSupervisorOperator,
    SupervisorHistoryOperator,
    SupervisorParseErrorsOperator,
    SupervisorStatusOperator,
)
from airflow_provider_coordination.sensors.acknowledgments import AcknowledgmentSensor
from airflow_provider_coordination.sensors.intervals import IntervalCompleteSensor
from airflow_provider_coordination.sensors.partitions import PartitionsAvailableSensor, PartitionsCompletedSensor
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.dynamodb_export.kind import DynamoDBExport
from airflow_provider_coordination.sources.jdbc.kind import JdbcTable
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.opensearch.kind import OpenSearchIndices
from airflow_provider_coordination.sources.own_source import Items
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import DeltaTable, ForeachBatch, ParquetDataset
from airflow_provider_coordination.spark.writes.iceberg import IcebergTable
from airflow_provider_coordination.spark.writes.sql import SqlTable
from tests.airflow.conftest import REPOSITORY
from tests.airflow.test_provider_info import classes
from tests.support.airflow_dags import DagBag, DagSerialization

GIVEN: dict[type[Any], Mapping[str, Any]] = {
    AcknowledgeOperator: {},
    AcknowledgmentSensor: {},
    CreatePartitionsOperator: {"partitions": ["p"]},
    IntervalCompleteOperator: {"asset": Asset("clicks by hour")},
    IntervalCompleteSensor: {"interval_end": "2026-01-01T01:00:00Z"},
    ShardSyncOperator: {"reads": KinesisStreams("clicks")},
    PartitionsAvailableSensor: {},
    PartitionsCompletedSensor: {},
    ReleasePartitionsOperator: {"expired": True},
    ReopenPartitionsOperator: {},
    ResetPartitionsOperator: {"to": "earliest"},
    SubmitSupervisorOperator: {
        "spec": {
            "version": 1,
            "source": "clicks",
            "reads": {"kinesis": {"streams": "clicks"}},
            "writes": {"parquet": {"path": "/lake"}},
        }
    },
    AuditOperator: {"writes": ParquetDataset("/lake")},
    SupervisorHistoryOperator: {},
    SupervisorParseErrorsOperator: {},
    SupervisorStatusOperator: {},
    **{each: {} for each in vars(supervisor).values() if hasattr(each, "verb")},
}
"""Every operator and sensor whose source is a template, and what it needs beside it."""

every_class = pytest.mark.parametrize("cls", GIVEN, ids=lambda cls: cls.__name__)


def test_every_operator_and_sensor_is_listed_here() -> None:
    assert {
        *GIVEN,
        CoordinatedSparkSubmitOperator,
        FollowJobOperator,
        ListSupervisorsOperator,
        MaintainTableOperator,
        SuperviseOperator,
    } == {
        *classes("operators", BaseOperator),
        *classes("sensors", BaseOperator),
    }


@every_class
def test_class_can_be_mapped_and_stored(cls: type[Any]) -> None:
    with DAG("d", schedule=None) as dag:
        mapped: Any = cls.partial(task_id="t", **GIVEN[cls]).expand(source=["clicks", "views"])

    stored = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    assert DagSerialization.from_dict(stored).get_task("t").is_mapped
    assert mapped.unmap({"source": "views"}).source == "views"


def test_job_can_be_mapped_over_ingestions_and_stored() -> None:
    each = [Ingestion(reads=KinesisStreams(name), writes=ParquetDataset(f"/{name}")) for name in ("clicks", "views")]
    with DAG("d", schedule=None) as dag:
        mapped: Any = CoordinatedSparkSubmitOperator.partial(task_id="t").expand(ingestion=each)

    stored = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    assert DagSerialization.from_dict(stored).get_task("t").is_mapped
    assert mapped.unmap({"ingestion": each[1]}).ingestion == each[1]


def test_undefined_connection_fails_a_job_without_a_retry(context: Any) -> None:
    clicks = Ingestion(reads=KinesisStreams("clicks"), writes=ParquetDataset("/lake"))
    operator = CoordinatedSparkSubmitOperator(task_id="t", coordination_conn_id="absent", ingestion=clicks)
    with pytest.raises(AirflowFailException, match="connection 'absent' is not defined; create it with type 'coord"):
        operator.execute(context)


@every_class
def test_templated_fields_are_arguments_and_kept_as_given(cls: type[Any]) -> None:
    # Airflow renders what the field holds when the task runs, so that a constructor must not have looked into it.
    given = {"source": "{{ params.a }}", "coordination_conn_id": "{{ params.b }}"}
    operator = cls(task_id="t", **GIVEN[cls], **given)
    assert set(given) <= set(operator.template_fields)
    assert {name: getattr(operator, name) for name in given} == given


@every_class
def test_undefined_connection_fails_the_task_without_a_retry(cls: type[Any], context: Any) -> None:
    operator = cls(task_id="t", source="clicks", coordination_conn_id="absent", **GIVEN[cls])
    with pytest.raises(AirflowFailException, match="connection 'absent' is not defined; create it with type 'coord"):
        operator.execute(context)


@pytest.fixture(scope="module")
def examples() -> DagBag:
    return DagBag(str(REPOSITORY / "dags"))


def test_every_example_dag_is_serialized_completely_and_deterministically(examples: DagBag) -> None:
    assert examples.import_errors == {}
    for name, dag in examples.dags.items():
        text = json.dumps(DagSerialization.to_dict(dag))
        back = DagSerialization.from_dict(json.loads(text))
        assert set(back.task_ids) == set(dag.task_ids), name
        # An object without a text of its own shows its address, and each parsing would make a new version of the DAG.
        assert not re.search(r" at 0x[0-9a-f]+", text), name


DESCRIPTIONS = (
    DeltaTable,
    DynamoDBExport,
    DynamoDBTable,
    ForeachBatch,
    IcebergTable,
    Items,
    JdbcTable,
    KinesisStreams,
    OpenSearchIndices,
    ParquetDataset,
    S3Objects,
    SqlTable,
)


@pytest.mark.parametrize("cls", DESCRIPTIONS)
def test_sources_and_sinks_take_one_positional_argument(cls: type[Any]) -> None:
    first, *others = inspect.signature(cls).parameters.values()
    assert first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {each.kind for each in others} == {inspect.Parameter.KEYWORD_ONLY}
