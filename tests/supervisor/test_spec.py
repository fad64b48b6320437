"""A spec consists of the objects that operators take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.field_hints import format_duration
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.jdbc.kind import JdbcTable
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.own_source import Items
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import AcknowledgmentSettings, LeaseSettings
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec import IngestionSpec, SpecChange, change_between
from tests.supervisor.specs import SPEC, spec_with, spec_without


def test_error_of_a_source_names_its_path() -> None:
    reads = {"s3": {"paths": "s3://raw-data/clicks/", "wait_for": "a/b"}}
    with pytest.raises(ConfigurationError, match=r"^spec: field 'reads.s3.wait_for' must be the name of an object"):
        IngestionSpec.read({"version": 1, "reads": reads, "writes": {"parquet": {"path": "/data/lake/clicks"}}})


def test_spec_holds_the_objects_of_operators() -> None:
    spec = IngestionSpec.read(SPEC)
    ingestion = spec.ingestion
    assert ingestion.reads == KinesisStreams("clicks", aws_conn_id=None, region_name="eu-west-1")
    assert ingestion.writes == (ParquetDataset("/data/lake/clicks"),)
    assert ingestion.acknowledgments == AcknowledgmentSettings(timeout=timedelta(hours=1))
    assert spec.supervise == SuperviseSettings(
        task_count=2, task_duration=timedelta(hours=2), period=timedelta(seconds=10)
    )


def test_source_defaults_to_the_name_of_reads() -> None:
    assert IngestionSpec.read(spec_without("source")).source == "clicks"


def test_python_spec_equals_the_read_one() -> None:
    made = IngestionSpec(
        ingestion=Ingestion(
            reads=KinesisStreams("clicks"),
            writes=ParquetDataset("/data/lake/clicks"),
            schema="at TIMESTAMP",
            leases=LeaseSettings(handover_timeout=timedelta(seconds=90)),
        ),
        supervise=SuperviseSettings(late_message_rejection_start=datetime(2026, 1, 1, tzinfo=UTC), event_time="at"),
    )
    mapping = made.to_mapping()
    assert mapping == {
        "version": 1,
        "source": "clicks",
        "reads": {"kinesis": {"streams": "clicks"}},
        "writes": [{"parquet": {"path": "/data/lake/clicks"}}],
        "schema": "at TIMESTAMP",
        "leases": {"handover_timeout": "PT1M30S"},
        "supervise": {"event_time": "at", "late_message_rejection_start": "2026-01-01T00:00:00.000000Z"},
    }
    assert IngestionSpec.read(mapping) == made


def test_written_spec_reads_back_the_same() -> None:
    spec = IngestionSpec.read(SPEC)
    assert IngestionSpec.read(spec.to_mapping()) == spec


def test_effective_spec_reads_back_the_same() -> None:
    spec = IngestionSpec.read(SPEC)
    assert IngestionSpec.read(spec.effective()) == spec


def test_callers_do_not_share_read_objects() -> None:
    spec = IngestionSpec.read(SPEC)
    spec.job_ingestion().reads.streams = "others"
    assert spec.job_ingestion().reads.streams == "clicks"


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        (
            {"s3": {"paths": ["s3://incoming/a/", "s3://incoming/b/"], "interval": "PT5M", "max_objects": 5}},
            S3Objects(paths=("s3://incoming/a/", "s3://incoming/b/"), interval=timedelta(minutes=5), max_objects=5),
        ),
        (
            {"jdbc": {"table": "t", "column": "at", "incremental": True, "lag": "PT1M"}},
            JdbcTable(table="t", column="at", incremental=True, lag=timedelta(minutes=1)),
        ),
        (
            {"jdbc": {"table": "t", "column": "id", "incremental": True, "lag": 100}},
            JdbcTable(table="t", column="id", incremental=True, lag=100),
        ),
    ],
)
def test_every_source_kind_is_read_by_name(reads: dict[str, Any], expected: object) -> None:
    assert IngestionSpec.read(spec_with("reads", reads)).ingestion.reads == expected


def test_custom_source_imports_its_supplier_when_called() -> None:
    items = {"kind": "weather", "reader": "no_such_module:Reader", "supplier": "no_such_module:find"}
    spec = IngestionSpec.read(spec_with("reads", {"items": items}))
    assert isinstance(spec.ingestion.reads, Items) and spec.ingestion.reads.kind == "weather"
    assert spec.to_mapping()["reads"] == {"items": items}
    with pytest.raises(ConfigurationError, match="'no_such_module:find' cannot be imported"):
        spec.ingestion.reads.supplier({})  # type: ignore[misc]


def test_job_arguments_make_the_operator() -> None:
    task = CoordinatedSparkSubmitOperator(task_id="job", **IngestionSpec.read(SPEC).job_arguments())
    assert (task.ingestion.source, task.ingestion.transform, task.conf) == (
        "clicks", "my_project.transforms:clean", {"spark.ui.enabled": "false"},
    )  # fmt: skip


def test_endless_job_reads_until_handover_within_a_maximum_duration() -> None:
    rounds = IngestionSpec.read(SPEC).job_ingestion().rounds
    assert (rounds.until_caught_up, rounds.max_duration) == (False, timedelta(hours=2, minutes=30))


def test_finite_job_stops_after_its_last_partition() -> None:
    spec = IngestionSpec.read(spec_with("reads", {"s3": {"paths": "s3://incoming/a/"}}))
    assert spec.job_ingestion().rounds.until_caught_up


def test_spark_tuning_keys_are_arguments_of_the_spark_operator() -> None:
    import inspect

    from airflow_provider_coordination.supervisor.settings import SparkSettings

    arguments = {
        *inspect.signature(SparkSubmitOperator.__init__).parameters,
        *inspect.signature(CoordinatedSparkSubmitOperator.__init__).parameters,
    }
    assert set(SparkSettings.__dataclass_fields__) <= arguments


@pytest.mark.parametrize(
    ("path", "value", "change"),
    [
        ("supervise.task_count", 2, SpecChange.NONE),
        ("leases.max_leases_to_steal", None, SpecChange.NONE),
        ("supervise.task_duration", 7200, SpecChange.NONE),
        ("context.owner", "somebody", SpecChange.COSMETIC),
        ("supervise.task_count", 3, SpecChange.SUPERVISION),
        ("supervise.task_duration", "PT3H", SpecChange.SUPERVISION),
        ("supervise.auto_scale", {"task_count_min": 1, "task_count_max": 2}, SpecChange.SUPERVISION),
        ("tuning.start_timeout", "PT2H", SpecChange.SUPERVISION),
        ("tuning.spark_ui_url", "https://history/{application_id}", SpecChange.SUPERVISION),
        ("schema", "id STRING", SpecChange.JOBS),
        ("transform", "my_project.transforms:other", SpecChange.JOBS),
        ("per_batch", True, SpecChange.JOBS),
        ("reads.kinesis.on_data_loss", "earliest", SpecChange.JOBS),
        ("writes.0.parquet.where", "amount > 1", SpecChange.JOBS),
        ("bad_records.max_parse_exceptions", 1, SpecChange.JOBS),
        ("acknowledgments.timeout", "PT2H", SpecChange.JOBS),
        ("tuning.spark.executor_memory", "4g", SpecChange.JOBS),
        ("supervise.event_time", "at", SpecChange.JOBS),
    ],
)
def test_job_changes_alone_cause_a_handover(path: str, value: Any, change: SpecChange) -> None:
    old, new = IngestionSpec.read(SPEC), IngestionSpec.read(spec_with(path, value))
    assert change_between(old, new) is change


def test_first_spec_of_a_source_concerns_jobs() -> None:
    assert change_between(None, IngestionSpec.read(SPEC)) is SpecChange.JOBS


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("PT1H", timedelta(hours=1)),
        ("PT1M30S", timedelta(seconds=90)),
        ("P1DT2H", timedelta(hours=26)),
        ("P7D", timedelta(days=7)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("P31D", timedelta(days=31)),
    ],
)
def test_duration_round_trips(text: str, length: timedelta) -> None:
    spec = IngestionSpec.read(spec_with("reads", {"s3": {"paths": "s3://raw-data/clicks/", "range": text}}))
    assert spec.ingestion.reads.range == length  # type: ignore[attr-defined]
    assert format_duration(length) == text


def test_duration_may_be_in_weeks() -> None:
    assert IngestionSpec.read(spec_with("tuning.start_timeout", "P2W")).tuning.start_timeout == timedelta(weeks=2)


@pytest.mark.parametrize(
    ("length", "text"), [(timedelta(0), "PT0S"), (timedelta(hours=-1), "-PT1H"), (timedelta(days=1.5), "P1DT12H")]
)
def test_duration_is_written_as_iso(length: timedelta, text: str) -> None:
    assert format_duration(length) == text


BOUNDS = {"start": {"shardId-000000000000": "5"}, "end": {"shardId-000000000000": "9"}}


def test_backfill_is_a_separate_source_that_ends() -> None:
    backfill = spec_with("reads.kinesis.bounds", BOUNDS)
    del backfill["source"]
    backfill["supervise"]["terminate_when_done"] = True
    spec = IngestionSpec.read(backfill)
    assert spec.source.startswith("clicks@positions-")
    assert IngestionSpec.read(spec.to_mapping()) == spec
    assert change_between(IngestionSpec.read(SPEC), spec) is SpecChange.JOBS


def test_terminate_when_done_is_refused_without_an_end() -> None:
    with pytest.raises(ConfigurationError, match=r"is true, but 'reads\.kinesis' has no end: give it bounds"):
        IngestionSpec.read(spec_with("supervise.terminate_when_done", True))
