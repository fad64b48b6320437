"""`airflow-coordination init` writes a spec and a DAG, from options or from answers, and overwrites nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.cli.first_ingestion import SINKS, file_name, sources
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file
from airflow_provider_coordination.supervisor.spec_keys import ITEMS, reads_classes, writes_classes
from tests.cli.conftest import CommandResult, Shell
from tests.support.first_ingestions import SINK_OPTIONS, SOURCE_OPTIONS

PARQUET = ("--sink", "parquet", "--path", "s3://lake/clicks")
KINESIS = ("--source", "kinesis", "--stream", "clicks")


@pytest.fixture
def init(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*options: str, answer: str | None = None) -> CommandResult:
        return shell("init", *options, answer=answer, store=False)

    return run


def spec_of(file: str) -> IngestionSpec:
    return IngestionSpec.read(read_spec_file(file)[0])


def test_every_registered_kind_has_questions() -> None:
    assert set(sources()) == set(reads_classes()) - {ITEMS}
    assert set(SINKS) == set(writes_classes())


def test_options_write_a_spec_and_a_dag(init: Any) -> None:
    result = init(*KINESIS, *PARQUET, "--dag-file", "dags/x.py")
    spec = spec_of("dags/specs/clicks.yaml")
    assert (result.exit_code, result.err) == (0, "")
    assert (spec.source, spec.sinks[0].sink_location) == ("clicks", "s3://lake/clicks")
    assert 'Path(__file__).parent / "specs/clicks.yaml"' in Path("dags/x.py").read_text()


def test_result_says_what_to_do_next(init: Any) -> None:
    options = ("--source-conn-id", "kinesis_eu", "--coordination-conn-id", "leases", "--spark-conn-id", "yarn")
    lines = init(*KINESIS, *PARQUET, *options).out.splitlines()
    assert lines[:2] == [
        "written: dags/specs/clicks.yaml: what is ingested",
        "written: dags/clicks.py: the DAG clicks",
    ]
    for command in (
        "leases, yarn, kinesis_eu, aws_default",
        "airflow-coordination init-store --conn-id leases",
        "airflow-coordination doctor --spec dags/specs/clicks.yaml --conn-id leases",
        "airflow-coordination preview dags/specs/clicks.yaml",
        "airflow dags test clicks",
    ):
        assert f"       {command}" in lines


def test_source_without_a_preview_is_checked_by_its_connection(init: Any) -> None:
    result = init("--source", "jdbc", *SOURCE_OPTIONS["jdbc"], *PARQUET, "--name", "orders")
    assert "       airflow-coordination spec check dags/specs/orders.yaml --connect" in result.out.splitlines()


def test_script_gets_one_json_object(init: Any) -> None:
    [result] = init(*KINESIS, *PARQUET, "--supervised", "--json").records
    assert {name: result[name] for name in ("dag_file", "spec_file", "dag_id", "connections")} == {
        "dag_file": "dags/clicks.py",
        "spec_file": "dags/specs/clicks.yaml",
        "dag_id": "supervise_clicks",
        "connections": ["coordination_default", "spark_default", "aws_default"],
    }
    assert [set(step) for step in result["next"]] == [{"step", "what"}] * 5


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("source", SOURCE_OPTIONS)
def test_spec_of_every_source_and_sink_is_valid(init: Any, source: str, sink: str) -> None:
    result = init("--source", source, *SOURCE_OPTIONS[source], "--sink", sink, *SINK_OPTIONS[sink], "--name", "first")
    assert (result.exit_code, result.err) == (0, "")
    [(read, _)] = read_spec_file("dags/specs/first.yaml")[0]["reads"].items()
    assert (read, spec_of("dags/specs/first.yaml").source) == (source, "first")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "--source is missing, and there is no terminal to ask: Kind of source (dynamodb, "),
        (("--source", "kafka"), "--source must be one of dynamodb, "),
        (KINESIS, "--sink is missing, and there is no terminal to ask: Kind of sink (parquet, delta, "),
        (("--source", "kinesis", *PARQUET), "--stream is missing, and there is no terminal to ask: Name or ARN"),
        (
            ("--source", "kinesis", "--stream", "cli cks", *PARQUET),
            "--stream has 'cli cks'; give a name of 1",
        ),
        (("--source", "s3", "--objects", "in", *PARQUET), "--objects must be an absolute path or a URI"),
        (
            ("--source", "s3", "--objects", "s3://bucket/a", "--format", "xls", *PARQUET),
            "--format must be one of avro, csv, json",
        ),
        (("--source", "dynamodb", "--from-table", "a b", *PARQUET), "--from-table must be a name of 3 to 255 letters"),
        (("--source", "opensearch", "--index", "A B", *PARQUET), "--index must be a name in lower case"),
        ((*KINESIS, "--sink", "parquet", "--path", "lake"), "--path must be an absolute path or a URI"),
        ((*KINESIS, "--sink", "parquet", "--path", ""), "--path must not be empty"),
        ((*KINESIS, "--sink", "sql", "--to-table", "a", "--staging-path", "/tmp/a"), "--sink-conn-id is missing"),
        ((*KINESIS, *PARQUET, "--to-table", "a"), "--to-table is 'a', but it belongs to --sink iceberg or --sink sql"),
        ((*KINESIS, *PARQUET, "--schema", "id STRIN"), "'schema'"),
        ((*KINESIS, *PARQUET, "--name", "a|b"), "source 'a|b' is not usable"),
        ((*KINESIS, *PARQUET, "--schedule", "* * *"), "--schedule must be a cron expression, a preset such as @hourly"),
        ((*KINESIS, *PARQUET, "--schedule", "@daily", "--supervised"), "--supervised is given; give one of them"),
        ((*KINESIS, *PARQUET, "--dag-file", "x.txt"), "--dag-file must end with .py; got 'x.txt'"),
        ((*KINESIS, *PARQUET, "--spec-file", "a b.yaml"), "--spec-file is 'a b.yaml', but a DAG is named for it"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    init: Any, tmp_path: Path, options: tuple[str, ...], error: str
) -> None:
    result = init(*options)
    assert (result.exit_code, result.out) == (2, "")
    assert error in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("existing", ["dags/clicks.py", "dags/specs/clicks.yaml"])
def test_existing_file_is_overwritten_by_force_only(init: Any, existing: str) -> None:
    Path(existing).parent.mkdir(parents=True)
    Path(existing).write_text("mine")
    result = init(*KINESIS, *PARQUET)
    assert (result.exit_code, Path(existing).read_text()) == (2, "mine")
    assert f"is '{existing}', which exists; give another file, or --force to overwrite it" in result.err
    assert [path for path in Path("dags").rglob("*") if path.is_file()] == [Path(existing)]
    assert init(*KINESIS, *PARQUET, "--force").exit_code == 0
    assert Path(existing).read_text() != "mine"


def test_folder_that_cannot_be_written_is_named(init: Any) -> None:
    Path("dags").write_text("a file")
    result = init(*KINESIS, *PARQUET)
    assert result.exit_code == 2
    assert "file 'dags/specs/clicks.yaml' cannot be written: " in result.err


def test_terminal_is_asked_for_what_no_option_gives(init: Any) -> None:
    answers = ("kinesis", "clicks", "", "parquet", "/data/lake/clicks", "supervised", "")
    result = init(answer="".join(f"{answer}\n" for answer in answers))
    assert result.exit_code == 0
    assert "the DAG supervise_clicks" in result.out
    assert spec_of("dags/specs/clicks.yaml").ingestion.reads.aws_conn_id == "aws_default"  # type: ignore[attr-defined]
    assert 'supervised_ingestion("specs/clicks.yaml")' in Path("dags/clicks.py").read_text()


def test_wrong_answer_is_asked_again_at_once(init: Any) -> None:
    answers = ("kafka", "kinesis", "cli cks", "clicks", "", "parquet", "lake", "/lake", "hourly", "@hourly", "")
    result = init(answer="".join(f"{answer}\n" for answer in answers))
    assert result.exit_code == 0
    for error in (
        "must be one of dynamodb, ",
        "Error: has 'cli cks'; give a name of 1",
        "must be an absolute path or a URI",
        "must be a cron expression",
    ):
        assert error in result.err
    assert 'schedule="@hourly"' in Path("dags/clicks.py").read_text()


def test_answers_that_do_not_fit_together_are_asked_again(init: Any) -> None:
    given = ("--source", "s3", "--objects", "/in", "--sink", "foreach_batch", "--staging-path", "/tmp/staging")
    result = init(*given, "--format", "csv", "--function", "write", answer="my.sinks:write\n/staging\n\n\n")
    assert result.exit_code == 0
    assert "must be of the form 'module:function'" in result.err
    assert "function: my.sinks:write" in Path("dags/specs/in.yaml").read_text()


def test_existing_file_is_refused_while_it_is_asked_for(init: Any) -> None:
    Path("mine.py").write_text("mine")
    result = init(*KINESIS, *PARQUET, "--source-conn-id", "a", "--supervised", answer="\nmine.py\nother.py\n")
    assert result.exit_code == 0
    assert "is 'mine.py', which exists" in result.err
    assert Path("mine.py").read_text() == "mine"


def test_end_of_input_writes_nothing(init: Any, tmp_path: Path) -> None:
    result = init(answer="kinesis\n")
    assert result.exit_code == 1
    assert result.err.endswith("error: aborted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [("clicks", "clicks"), ("opensearch-logs-*", "opensearch-logs"), ("a.b/c d", "a.b_c_d"), ("*", "ingestion")],
)
def test_files_have_a_name_that_a_dag_may_have(source: str, name: str) -> None:
    assert file_name(source) == name
