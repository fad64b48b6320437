"""The OpenLineage metadata of a job: names of datasets, rows, columns, and the job's owner."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.job_reports import JobReport, RecordCounts
from airflow_provider_coordination.coordination.jobs import Job, JobState
from airflow_provider_coordination.operators import lineage as lineage_module
from airflow_provider_coordination.operators.lineage import JobDatasets, lineage_of, report_ended, result_of
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.source_kind import DatasetName, file_dataset
from airflow_provider_coordination.spark.job_settings import BadRecordSettings
from airflow_provider_coordination.spark.outcome import EXIT_LOST_WORK, Outcome
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores import StoreSettings
from tests.support.job_settings import parquet, reads_of
from tests.support.lineage_receiver import LineageReceiver


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
    "column_lineage": {
        "columns": {"id": {"id": ["IDENTITY"]}, "amount": {"amount": ["TRANSFORMATION"], "kind": ["CONDITIONAL"]}},
        "rows": {"kind": ["FILTER"]},
    },
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
    assert JobDatasets.of(SETTINGS).inputs == [
        DatasetName("kinesis://kinesis.eu-west-1.amazonaws.com", "clicks"),
        DatasetName("kinesis://kinesis.eu-west-1.amazonaws.com", "taps"),
    ]
    local = replace(SETTINGS, reads=clicks(region="r", endpoint_url="http://user:secret@here:4567"))
    assert JobDatasets.of(local).inputs[0] == DatasetName("kinesis://here:4567", "clicks")


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
    assert JobDatasets.of(replace(SETTINGS, reads=reads)).inputs == named


def test_custom_source_has_no_inputs() -> None:
    own = replace(SETTINGS, reads=ReadsSettings(kind="weather", settings={"reader": "my.module:Weather"}))
    assert JobDatasets.of(own).inputs == []


def test_every_sink_is_an_output_with_bad_records_last() -> None:
    assert JobDatasets.of(SETTINGS).outputs == [
        ("main", DatasetName("s3://lake", "raw/clicks")),
        ("large", DatasetName("file", "/lake/large")),
        ("dead_letter", DatasetName("file", "/lake/dead")),
    ]


def test_stored_datasets_are_bounded() -> None:
    paths = [f"s3://lake/{number:060}/" for number in range(100)]
    reads = ReadsSettings(kind="s3", settings={"paths": paths})
    datasets = JobDatasets.of(replace(SETTINGS, reads=reads))
    assert JobDatasets.from_text(JobDatasets.of(SETTINGS).to_text()) == JobDatasets.of(SETTINGS)
    stored = JobDatasets.from_text(datasets.to_text())
    assert len(datasets.to_text()) <= lineage_module.MAX_STORED_CHARACTERS
    assert 0 < len(stored.inputs) < 100 and stored.outputs == datasets.outputs
    with pytest.raises(ValueError, match="names no datasets"):
        JobDatasets.from_text("{}")


@pytest.mark.integration  # needs no server, but OpenLineage's modules, and so seconds
def test_openlineage_receives_inputs_outputs_rows_columns_and_owner() -> None:
    lineage = lineage_of(JobDatasets.of(SETTINGS), RESULT)
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
def test_columns_come_from_each_stream() -> None:
    facet = lineage_of(JobDatasets.of(SETTINGS), RESULT).outputs[0].facets["columnLineage"]

    def shown(fields: Any) -> list[tuple[str, str, str, str]]:
        return [(each.name, each.field, use.type, use.subtype) for each in fields for use in each.transformations]

    assert shown(facet.fields["id"].inputFields) == [
        ("clicks", "id", "DIRECT", "IDENTITY"), ("taps", "id", "DIRECT", "IDENTITY"),
    ]  # fmt: skip
    assert shown(facet.fields["amount"].inputFields)[:2] == [
        ("clicks", "amount", "DIRECT", "TRANSFORMATION"), ("clicks", "kind", "INDIRECT", "CONDITIONAL"),
    ]  # fmt: skip
    assert shown(facet.dataset)[0] == ("clicks", "kind", "INDIRECT", "FILTER")


@pytest.mark.integration
def test_job_without_a_result_has_datasets_and_no_rows() -> None:
    lineage = lineage_of(JobDatasets.of(SETTINGS), {"owner": "owner"})
    assert [output.outputFacets for output in lineage.outputs] == [{}, {}, {}]
    assert lineage.outputs[0].facets == {}
    assert lineage.run_facets["coordination"].owner == "owner"


def test_inputs_are_named_without_openlineage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = (
        "airflow_provider_coordination.operators.lineage",
        ("openlineage", "airflow.providers.openlineage"),
    )
    for name in [name for name in sys.modules if name.startswith((ours, *theirs))]:
        monkeypatch.delitem(sys.modules, name)
    for name in theirs:
        monkeypatch.setitem(sys.modules, name, None)
    fresh = importlib.import_module("airflow_provider_coordination.operators.lineage")
    assert fresh.JobDatasets.of(SETTINGS).inputs[0].name == "clicks"
    with pytest.raises(ImportError):
        fresh.lineage_of(fresh.JobDatasets.of(SETTINGS), RESULT)


# Supervised jobs

NOON, ONE = datetime(2026, 1, 31, 12, tzinfo=UTC), datetime(2026, 1, 31, 13, tzinfo=UTC)


def ended(outcome: Outcome, **fields: Any) -> Job:
    return Job(
        owner="host:dag:run:ingest:-1:1:ab",
        state=JobState.ENDED,
        since=ONE,
        submitted_at=NOON,
        datasets=JobDatasets.of(SETTINGS).to_text(),
        outcome=outcome.to_mapping(),
        **fields,
    )


class Supervise:
    """Stands in for the task's operator."""


@pytest.fixture
def in_task() -> Any:
    return {
        "ti": SimpleNamespace(dag_id="supervise_clicks", task_id="supervise", map_index=-1, try_number=1),
        "dag_run": SimpleNamespace(logical_date=NOON, run_after=NOON, clear_number=0),
        "task": Supervise(),
    }


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Configures the transport of OpenLineage."""
    from airflow.providers.openlineage.plugins.listener import get_openlineage_listener

    def use(transport: str) -> None:
        get_openlineage_listener.cache_clear()
        monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", transport)

    yield use
    get_openlineage_listener.cache_clear()


@pytest.fixture
def receiver(configure: Callable[[str], None]) -> Iterator[LineageReceiver]:
    with LineageReceiver() as listening:
        configure(listening.transport)
        yield listening


@pytest.mark.integration
def test_supervised_job_is_a_run_below_its_task(receiver: LineageReceiver, in_task: Any) -> None:
    from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter

    report_ended(in_task, [ended(Outcome(exit_code=0, summary=RESULT))], Redaction())
    report_ended(in_task, [ended(Outcome(exit_code=0, summary=RESULT))], Redaction())

    begun, done = receiver.events[:2]
    assert [event["eventType"] for event in (begun, done)] == ["START", "COMPLETE"]
    assert [event["eventTime"] for event in (begun, done)] == [NOON.isoformat(), ONE.isoformat()]
    assert len({event["run"]["runId"] for event in receiver.events}) == 1, "the run is the same if reported again"
    assert done["job"]["name"] == "supervise_clicks.supervise.clicks"
    parent = done["run"]["facets"]["parent"]
    assert parent["job"]["name"] == "supervise_clicks.supervise"
    assert parent["run"]["runId"] == OpenLineageAdapter.build_task_instance_run_id(
        dag_id="supervise_clicks", task_id="supervise", try_number=1, logical_date=NOON, map_index=-1
    )
    assert [each["name"] for each in done["inputs"]] == ["clicks", "taps"]
    assert done["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 4
    assert done["outputs"][0]["facets"]["columnLineage"]["fields"]["id"]["inputFields"][0]["field"] == "id"
    assert done["run"]["facets"]["coordination"]["records"] == 7


@pytest.mark.integration
def test_failed_job_reports_its_error_and_delivered_records(receiver: LineageReceiver, in_task: Any) -> None:
    report = JobReport(at=ONE, totals=RecordCounts(processed=5))
    vanished = ended(Outcome(exit_code=None, error="the job vanished, as hush-hush-hush says"), report=report)
    report_ended(in_task, [vanished], Redaction({"password": "hush-hush-hush"}))

    failed = receiver.events[-1]
    facets = failed["run"]["facets"]
    assert (failed["eventType"], facets["coordination"]["records"]) == ("FAIL", 5)
    assert facets["errorMessage"]["message"] == "the job vanished, as *** says"
    assert [each["name"] for each in failed["outputs"]] == ["raw/clicks", "/lake/large", "/lake/dead"]


@pytest.mark.integration
def test_withdrawn_job_is_no_run_and_lost_work_no_failure(receiver: LineageReceiver, in_task: Any) -> None:
    report_ended(in_task, [ended(Outcome(exit_code=None)), ended(Outcome(exit_code=EXIT_LOST_WORK))], Redaction())
    assert [event["eventType"] for event in receiver.events] == ["START", "COMPLETE"]


@pytest.mark.integration
def test_unreachable_endpoint_fails_nothing(
    configure: Callable[[str], None], in_task: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with LineageReceiver() as receiver:
        configure(receiver.transport)
    report_ended(in_task, [ended(Outcome(exit_code=0))], Redaction())
    configure('{"type": "none of them"}')
    report_ended(in_task, [ended(Outcome(exit_code=0))], Redaction())
    assert "jobs that ended are not reported to OpenLineage" in caplog.text


@pytest.mark.integration
def test_endpoint_that_does_not_respond_is_waited_for_once(
    configure: Callable[[str], None], in_task: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_module, "REPORT_SECONDS", 0.1)
    with LineageReceiver(hangs=True) as receiver:
        configure(receiver.transport)
        report_ended(in_task, [ended(Outcome(exit_code=0))] * 3, Redaction())
        assert receiver.events == []
    assert "OpenLineage did not take the events of 3 jobs within 0.1 seconds" in caplog.text


@pytest.mark.integration
def test_disabled_operator_reports_nothing(
    receiver: LineageReceiver, in_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{Supervise.__module__}.{Supervise.__qualname__}"
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__DISABLED_FOR_OPERATORS", name)
    report_ended(in_task, [ended(Outcome(exit_code=0))], Redaction())
    assert receiver.events == []


def test_job_without_a_summary_reports_what_it_reported_last() -> None:
    job = ended(Outcome(exit_code=None), report=JobReport(at=ONE, totals=RecordCounts(processed=5)))
    assert result_of("owner", Outcome(exit_code=1), job) == {"owner": "owner", "records_delivered": 5}
    assert result_of("owner", Outcome(exit_code=1, summary={"rounds": 2}), job) == {"owner": "owner", "rounds": 2}
    assert result_of("owner", Outcome(exit_code=1), None) == {"owner": "owner"}
