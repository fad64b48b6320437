"""The Spark job of a source other than a stream, with a stub in place of spark-submit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.helpers import serialize_template_field

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.operators.claims import claim_reads
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.jdbc.kind import JdbcTable
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.sources.opensearch.kind import OpenSearchIndices
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.writes import ParquetDataset
from tests.airflow.conftest import SECRET, StubSpark, run_dag
from tests.airflow.weather import weather
from tests.support.ingestions import with_ingestion

pytestmark = pytest.mark.usefixtures("coordination")


@pytest.fixture
def open_partitions(coordination: SourceCoordinator) -> None:
    """Partitions of the sources that jobs are started for: without any, none is."""
    for name in ("weather", "met"):
        source = SourceCoordinator(coordination.store, name, "test")
        source.initialize()
        source.create_partitions({"oslo": {}})


@pytest.fixture
def operator(spark: StubSpark, tmp_path: Path) -> Callable[..., CoordinatedSparkSubmitOperator]:
    def make(**arguments: Any) -> CoordinatedSparkSubmitOperator:
        defaults = {
            "task_id": "ingest",
            "reads": weather(),
            "writes": ParquetDataset(str(tmp_path / "out")),
            "env_vars": {"PATH": spark.path},
        }
        return CoordinatedSparkSubmitOperator(**with_ingestion(defaults | arguments))

    return make


@pytest.mark.usefixtures("open_partitions")
def test_reader_settings_travel_in_the_private_file_alone(
    operator: Any, spark: StubSpark, context: Any, connect: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    connect("met", "http", host="met.example", password=SECRET)
    operator(reads=weather(conn_id="met", reader_settings={"unit": "C"})).execute(context)
    [call] = spark.calls
    settings = call["settings"]
    assert (settings["source"], settings["reads"]["kind"]) == ("weather", "weather")
    given = settings["reads"]["settings"]
    assert (given["reader"], given["reader_settings"]["unit"]) == ("weather:Weather", "C")
    assert given["reader_settings"]["connection"]["password"] == SECRET
    added = {name: value for name, value in call["environment"].items() if os.environ.get(name) != value}
    for place in (call["arguments"], added, capsys.readouterr().out):
        assert SECRET not in str(place)


def settings_of(operator: CoordinatedSparkSubmitOperator, context: Any) -> IngestSettings:
    return operator.job_settings(CoordinationHook().settings, context)


@pytest.mark.parametrize(
    ("conn_type", "reads"),
    [
        ("aws", S3Objects(paths="s3://events/in/", aws_conn_id="of_source", source="s")),
        ("aws", DynamoDBTable(table="orders", aws_conn_id="of_source", source="s")),
        ("opensearch", OpenSearchIndices(indices="logs-*", opensearch_conn_id="of_source", source="s")),
        ("postgres", JdbcTable(table="orders", column="id", jdbc_conn_id="of_source", source="s")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_secrets_of_a_source_reach_the_job_unseen(
    operator: Any, context: Any, connect: Any, conn_type: str, reads: Any
) -> None:
    schema = {} if conn_type == "aws" else {"schema": "http" if conn_type == "opensearch" else "shop"}
    extra = {"region_name": "eu-west-1"} if conn_type == "aws" else {}
    connect("of_source", conn_type, host="db", login="me", password=SECRET, extra=extra, **schema)
    task = operator(reads=reads)
    settings = settings_of(task, context)
    assert SECRET in json.dumps(write_settings(settings)), "the job can log in"
    shown = {
        "settings": repr(settings),
        "reads": repr(reads.connect(AirflowConnections())),
        "rendered template": serialize_template_field(task.ingestion, "ingestion"),
        "claim": reads.reads_from,
        "log": Redaction(settings).text(f"login failed: me/{SECRET}"),
    }
    assert [place for place, text in shown.items() if SECRET in str(text)] == []


def test_source_may_have_another_name(operator: Any, context: Any) -> None:
    assert settings_of(operator(source="met"), context).source == "met"


def test_unused_default_args_of_the_dag_are_ignored(operator: Any, context: Any) -> None:
    with DAG("dag", schedule=None, default_args={"aws_conn_id": "mine"}):
        task = operator()
    assert settings_of(task, context).reads.kind == "weather"


@pytest.fixture
def claimed_by_another(coordination: SourceCoordinator, context: Any) -> None:
    """Another DAG reads the source `weather`, and means what `weather()` says."""
    source = SourceCoordinator(coordination.store, "weather", "test")
    source.initialize()
    ti = SimpleNamespace(dag_id="another", task_id="create")
    claim_reads(source.view, {**context, "ti": ti}, weather())


@pytest.mark.usefixtures("claimed_by_another")
def test_source_that_another_dag_reads_differently_is_refused(operator: Any, spark: StubSpark, context: Any) -> None:
    with pytest.raises(
        AirflowFailException, match=r"source 'weather' is claimed by DAG 'another'.* but DAG 'dag' reads"
    ):
        operator(reads=weather(reader="other:Reader")).execute(context)
    assert spark.calls == []


@pytest.mark.usefixtures("claimed_by_another")
def test_stream_with_the_name_of_another_source_is_refused(operator: Any, context: Any, connect: Any) -> None:
    connect("aws_default", "aws", extra={"region_name": "eu-west-1"})
    with pytest.raises(AirflowFailException, match="kind 'kinesis' here and 'weather' there"):
        operator(reads=KinesisStreams("clicks"), source="weather").execute(context)


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
@pytest.mark.usefixtures("open_partitions")
def test_templates_are_rendered_per_mapped_task_and_run(
    spark: StubSpark, database: None, coordination: SourceCoordinator, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spark.folder / "spark-submit").rename(spark.folder / "spark2-submit")
    connect("spark_default", "spark", host="local[1]", extra={"spark-binary": "spark2-submit"})
    monkeypatch.setenv("PATH", spark.path)
    reads = weather(source="{{ params.source }}", reader_settings={"of": ["{{ task.name }}", "{{ run_id }}"]})
    writes = [ParquetDataset("/out/{{ run_id }}"), ParquetDataset("/copy", name="{{ params.source }}-copy")]
    with DAG("mapped", schedule=None, params={"source": "met"}) as dag:
        CoordinatedSparkSubmitOperator.partial(
            task_id="ingest", ingestion=Ingestion(reads=reads, writes=writes)
        ).expand(name=["first", "second"])
    runs = [run_dag(dag) for _ in range(2)]
    settings = [call["settings"] for call in spark.calls]
    assert {each["source"] for each in settings} == {"met"}
    assert sorted(each["reads"]["settings"]["reader_settings"]["of"] for each in settings) == sorted(
        [name, run.run_id] for name in ("first", "second") for run in runs
    )
    assert {each["landing_path"] for each in settings} == {f"/out/{run.run_id}/_landing" for run in runs}
    assert {tuple(sink["name"] for sink in each["writes"]) for each in settings} == {("main", "met-copy")}
