"""The manual agrees with the code: links, paths, names, defaults, messages and examples."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from airflow.sdk import BaseHook, BaseOperator, BaseOperatorLink
from airflow.triggers.base import BaseTrigger
from sqlalchemy.dialects import mysql, postgresql

import airflow_provider_coordination
from airflow_provider_coordination.cli import app
from airflow_provider_coordination.cli.commands import COMMON, EXIT_REFUSED, EXIT_USAGE
from airflow_provider_coordination.cli.inspection import SortKey
from airflow_provider_coordination.coordination.acknowledgment import (
    MAX_NAME_CHARACTERS,
    MAX_REASON_CHARACTERS,
    MAX_REFERENCES,
    AcknowledgmentSet,
    AcknowledgmentState,
    record_of,
)
from airflow_provider_coordination.coordination.acknowledgment_sets import MAX_TIMEOUT
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.held_leases import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.metrics import (
    PARTITIONS,
    WATERMARK_SECONDS,
    WORKERS,
    CoordinationMetric,
)
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.decorators import AcknowledgesDecoratedOperator, PartitionsDecoratedOperator
from airflow_provider_coordination.get_provider_info import get_provider_info
from airflow_provider_coordination.operators.acknowledge import AcknowledgeOperator
from airflow_provider_coordination.operators.audit import AuditOperator
from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.interval_events import IntervalCompleteOperator
from airflow_provider_coordination.operators.job_results import RANGES_LISTED, delivered_range, no_stream
from airflow_provider_coordination.operators.maintain_table import MaintainTableOperator
from airflow_provider_coordination.operators.partitions import ReleasePartitionsOperator, ResetPartitionsOperator
from airflow_provider_coordination.operators.prepared_jobs import FollowJobOperator
from airflow_provider_coordination.operators.reopen_partitions import ReopenPartitionsOperator
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sensors.acknowledgments import AcknowledgmentSensor
from airflow_provider_coordination.sensors.intervals import IntervalCompleteSensor
from airflow_provider_coordination.sensors.partitions import PartitionsAvailableSensor, PartitionsCompletedSensor
from airflow_provider_coordination.settings import Described
from airflow_provider_coordination.sources.items import ItemReader
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.kinesis.positions import LATEST
from airflow_provider_coordination.sources.kinesis.sync_state import ShardSyncMetric, ShardSyncSummary, StreamSync
from airflow_provider_coordination.sources.own_source import Items, PartitionSupplier
from airflow_provider_coordination.spark import outcome
from airflow_provider_coordination.spark.bad_records import ERROR_CHARACTERS, MAX_FAILING, PAYLOAD_CHARACTERS
from airflow_provider_coordination.spark.job_reporting import IngestionMetric
from airflow_provider_coordination.spark.job_settings import (
    MAX_SAVED_PARSE_EXCEPTIONS,
)
from airflow_provider_coordination.spark.job_spark import SPARK_CONF, WORKER_ENVIRONMENT
from airflow_provider_coordination.spark.kinesis.data_source_options import FORMAT, OPTIONS, ReadOptions, read_options
from airflow_provider_coordination.spark.kinesis.data_source_tasks import COLUMNS
from airflow_provider_coordination.spark.kinesis.shard_format import RECORD_SCHEMA, SHARD_RECORDS
from airflow_provider_coordination.spark.layout import ITEM_RECORDS
from airflow_provider_coordination.spark.outcome import SETS_NAMED, Summary
from airflow_provider_coordination.spark.sinks.sql.columns import TYPES as COLUMN_TYPES
from airflow_provider_coordination.spark.telemetry import (
    FLUSH_SECONDS,
    METRICS,
    PROTOCOLS,
    SERVICE_NAME,
    TRACES,
    Signal,
)
from airflow_provider_coordination.stores import DEFAULT_HISTORY_DAYS, DEFAULT_KIND, open_store
from airflow_provider_coordination.stores.kind import DEFAULT_TABLE
from airflow_provider_coordination.supervisor.spec_keys import reads_classes
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = Path(airflow_provider_coordination.__file__).parent
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
MADE_BY_RUNS = ("ui/static/vendor", "dist", ".venv", ".tools", ".demo", ".site")
REQUIRED = {ShardSyncOperator: ("reads",)}
"""What has None as its default only so that its absence is answered in our words."""
GIVEN_BY_TASKFLOW = ("python_callable", "op_args", "op_kwargs")
HEADINGS: dict[type[Any], str] = {
    AcknowledgesDecoratedOperator: "Task decorator acknowledges",
    PartitionsDecoratedOperator: "Task decorator partitions",
}
OPERATOR_PAGES = (
    "completeness.md",
    "operators.md",
    "task_group.md",
    "finding_partitions.md",
    "job.md",
    "job_end.md",
    "job_deferred.md",
    "job_start.md",
    "acknowledging.md",
    "waiting.md",
    "administration_tasks.md",
)

A_FILE_OR_FOLDER = re.compile(r"`((?:\.?[\w-][\w.-]*/)+(?:[\w-]+\.\w+)?|[\w-]+\.(?:py|md|toml|yaml))`")


def page(name: str) -> str:
    """Return the text of a page; for `operators.md`, with the pages that describe the operators one by one."""
    names = OPERATOR_PAGES if name == "operators.md" else (name,)
    return "\n".join((REPOSITORY / "docs" / each).read_text() for each in names)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def rows(text: str, first_heading: str, *, below: str = "") -> list[list[str]]:
    """Return the cells of the first table, below a line, whose first column has this heading."""
    lines = iter(text[text.index(below) :].splitlines())
    for line in lines:
        if line.startswith(f"| {first_heading} |"):
            next(lines)
            return [cells(row) for row in takewhile(lambda row: row.startswith("|"), lines)]
    raise AssertionError(f"no table of {first_heading!r} below {below!r}")


def code(cell: str) -> str:
    return cell.strip("`").replace(r"\|", "|")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text()))
    assert targets
    for target in targets:
        if "://" not in target:
            file, _, anchor = target.partition("#")
            linked = path.parent / file if file else path
            assert linked.exists(), target
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE) if anchor else []
            assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}, target


def test_named_files_exist() -> None:
    named = {(path.name, name) for path in PAGES for name in A_FILE_OR_FOLDER.findall(prose(path.read_text()))}
    lasting = {(page, name) for page, name in named if not name.startswith(("_", *MADE_BY_RUNS))}
    assert lasting
    for page, name in lasting:
        assert any((root / name).exists() for root in (REPOSITORY, PACKAGE, REPOSITORY / "docs")), f"{page}: {name}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_repeat_no_block(path: Path) -> None:
    blocks = Counter(block for block in path.read_text().split("\n\n") if len(block) > 100 and "```" not in block)
    assert [block for block, times in blocks.items() if times > 1] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_hold_no_path_of_one_machine(path: Path) -> None:
    assert not re.search(r"/(?:work|home|root|Users)/", path.read_text())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_blocks_compile_and_json_blocks_parse(path: Path) -> None:
    text = path.read_text()
    for block in blocks(text, "python"):
        compile(block, path.name, "exec")
    for block in blocks(text, "json"):
        json.loads(block)
    for connection in re.findall(r"^export AIRFLOW_CONN_\w+='(.*?)'$", text, re.MULTILINE | re.DOTALL):
        assert "conn_type" in json.loads(connection)


@pytest.mark.parametrize("language", ["python", "json"])
def test_manual_contains_blocks_of_each_language(language: str) -> None:
    assert sum(len(list(blocks(path.read_text(), language))) for path in PAGES) > 10


def examples() -> Iterator[Any]:
    for path in PAGES:
        for number, block in enumerate(blocks(path.read_text(), "python")):
            if "airflow_provider_coordination" in block:
                yield pytest.param(block, id=f"{path.stem}-{number}")


@pytest.mark.parametrize("block", examples())
def test_examples_run_as_dag_files(block: str) -> None:
    exec(compile(block, "example.py", "exec"), {})


@pytest.mark.parametrize(
    "operator",
    [
        ShardSyncOperator,
        CreatePartitionsOperator,
        PartitionsDecoratedOperator,
        CoordinatedSparkSubmitOperator,
        FollowJobOperator,
        AcknowledgeOperator,
        AcknowledgesDecoratedOperator,
        PartitionsCompletedSensor,
        PartitionsAvailableSensor,
        AcknowledgmentSensor,
        ReopenPartitionsOperator,
        ReleasePartitionsOperator,
        ResetPartitionsOperator,
        AuditOperator,
        MaintainTableOperator,
        IntervalCompleteOperator,
        IntervalCompleteSensor,
    ],
)
def test_parameters_are_documented(operator: type[Any]) -> None:
    actual = {
        p.name: (
            "required" if p.default is p.empty or p.name in REQUIRED.get(operator, ()) else repr(p.default),
            "yes" if p.name in operator.template_fields else "no",
        )
        for p in inspect.signature(operator.__init__).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.name not in GIVEN_BY_TASKFLOW
    }
    heading = HEADINGS.get(operator, operator.__name__)
    table = rows(page("operators.md"), "parameter", below=f"\n## {heading}\n")
    assert {code(name): (code(default), templated) for name, default, templated, _ in table} == actual


def test_task_group_arguments_are_documented() -> None:
    actual = {
        p.name: "required" if p.default is p.empty else repr(p.default)
        for p in inspect.signature(coordinated_ingestion).parameters.values()
        if p.kind is not p.VAR_KEYWORD
    }
    table = rows(page("operators.md"), "argument", below="\n## coordinated_ingestion\n")
    assert {code(name): code(default) for name, default, _ in table} == actual


def test_types_of_new_columns_are_documented() -> None:
    table = rows(page("sink_sql.md"), "type of the rows")
    documented = {code(kind): [code(re.split("[,;]", cell)[0]) for cell in cells] for kind, *cells in table}
    same = {"bool": "boolean", "int": "integer", "time without time zone": "time"}

    def known(name: str) -> str:
        return same.get(name.lower(), name.lower())

    dialects = (postgresql.dialect(), mysql.dialect())
    for kind in COLUMN_TYPES.keys() - {"null"}:
        columns = [known(COLUMN_TYPES[kind].compile(dialect=dialect)) for dialect in dialects]
        assert [known(name) for name in documented[kind]] == columns


def test_operator_results_are_documented() -> None:
    text = page("operators.md")
    returned = [f.name for f in dataclasses.fields(Summary) if f.name != "column_lineage"]  # OpenLineage alone gets it
    assert [code(key) for key, _ in rows(text, "key")] == ["owner", *returned]
    for field in dataclasses.fields(ShardSyncSummary):
        assert f"`{field.name}`" in text
    assert [code(name) for name, _ in rows(text, "of each stream")] == [f.name for f in dataclasses.fields(StreamSync)]


def test_exit_codes_are_documented() -> None:
    documented = [int(code(number)) for number, _, _ in rows(page("operators.md"), "exit code")]
    assert documented == [value for name, value in vars(outcome).items() if name.startswith("EXIT_")]


def test_spark_settings_are_documented() -> None:
    assert SPARK_CONF and WORKER_ENVIRONMENT
    for name, value in SPARK_CONF.items():
        assert f"`{name}={value}`" in page("operators.md")
    for name, value in WORKER_ENVIRONMENT.items():
        assert f"`{name}={value}`" in page("operators.md")


def test_connection_fields_are_documented() -> None:
    defaults = {code(name): code(default) for name, _, default, *_ in rows(page("connection.md"), "field")}
    (connection,) = get_provider_info()["connection-types"]
    assert list(defaults) == list(connection["conn-fields"])
    assert (defaults["store"], defaults["table"]) == (DEFAULT_KIND, DEFAULT_TABLE)
    assert float(defaults["history_days"]) == DEFAULT_HISTORY_DAYS
    assert float(defaults["ownership_timeout"]) == DEFAULT_OWNERSHIP_TIMEOUT.total_seconds()
    assert float(defaults["safety_margin"]) == DEFAULT_SAFETY_MARGIN.total_seconds()


def test_configuration_options_are_documented() -> None:
    options = get_provider_info()["config"]["coordination"]["options"]
    documented = [
        [*map(code, facts), re.sub(r"`|\[(.*?)\]\(.*?\)", r"\1", meaning)]
        for *facts, meaning in rows(page("configuration.md"), "option")
    ]
    assert documented == [
        [name, option["type"], option["default"], option["example"], option["description"].strip()]
        for name, option in options.items()
    ]


def test_columns_are_documented_with_their_types() -> None:
    documented = [(code(name), code(kind)) for name, kind, *_ in rows(page("columns.md"), "column")]
    assert documented == [(field.name, str(field.type)) for field in RECORD_SCHEMA]
    of_items = [code(name) for name, *_ in rows(page("columns.md"), "column of every item")]
    assert tuple(of_items) == ITEM_RECORDS.names


def test_data_source_options_are_documented_with_spellings_and_defaults() -> None:
    options = rows(page("data-source.md"), "option")
    assert [(code(name), re.findall(r"`(.*?)`", spellings)) for name, _, spellings, _ in options] == [
        (name, list(spellings)) for name, spellings in OPTIONS.items()
    ]
    assert {code(name): code(default) for name, default, *_ in options if default.startswith("`")} == {
        "initialPosition": str(ReadOptions.start),
        "endingPosition": LATEST,
        "consumerMode": "polling",
        "maxRecordsPerFetch": str(ReadOptions.page_records),
        "slotMemoryBytes": str(ReadOptions.slot_memory_bytes),
        "failOnDataLoss": str(ReadOptions.fail_on_data_loss).lower(),
    }


def test_data_source_columns_are_documented_with_their_types() -> None:
    documented = [(code(name), kind) for name, kind, _ in rows(page("data-source.md"), "column")]
    assert documented == [(name, kind) for name, (_, kind) in COLUMNS.items()]


def test_data_source_example_is_a_valid_read() -> None:
    [example] = blocks(page("data-source.md"), "python")
    given = dict(re.findall(r'\.option\("(\w+)", "(.*?)"\)', example))
    assert f'format("{FORMAT}")' in example and read_options(given).streams == ("clicks",)
    [ranges] = blocks(page("data-source.md"), "json")
    assert len(read_options({"streamName": "clicks", "shardRanges": ranges}).ranges) == 2


def test_dead_letter_columns_are_documented_with_their_types() -> None:
    text = page("bad_records.md")
    for heading, layout in (("column", SHARD_RECORDS), ("column of items", ITEM_RECORDS)):
        documented = [(code(name), code(kind)) for name, kind, _ in rows(text, heading)]
        assert documented == [(field.name, str(field.type)) for field in layout.dead_letter]


def test_bounds_on_bad_records_are_documented() -> None:
    text = page("bad_records.md")
    assert f"More than {MAX_FAILING} such records in one batch" in text
    assert f"error ({ERROR_CHARACTERS} characters)" in text and f"({PAYLOAD_CHARACTERS} bytes)" in text
    assert f"at most {MAX_SAVED_PARSE_EXCEPTIONS}" in page("operators.md")


@pytest.mark.parametrize(
    ("heading", "metrics"),
    [
        ("Partitions and leases", list(CoordinationMetric)),
        ("Gauge of a source", [PARTITIONS, WORKERS, WATERMARK_SECONDS]),
        ("Of a shard sync", list(ShardSyncMetric)),
        ("Of a Spark job", list(IngestionMetric)),
    ],
)
def test_metrics_are_documented(heading: str, metrics: list[str]) -> None:
    table = rows(page("metrics.md"), "metric", below=f"\n### {heading}\n")
    assert [code(name) for name, *_ in table] == metrics
    assert all(all(row) for row in table)


@pytest.mark.parametrize("name", ["metrics.md", "operations.md", "tuning.md", "migrate_kcl.md"])
def test_documented_metrics_exist(name: str) -> None:
    known = {*CoordinationMetric, PARTITIONS, WORKERS, WATERMARK_SECONDS, *ShardSyncMetric, *IngestionMetric}
    named = set(re.findall(r"\bcoordination\.[a-z_]+", re.sub(r"\(\S*\)", "", page(name))))
    assert named
    assert named <= known


@pytest.mark.parametrize(("signal", "name"), [(METRICS, "metrics.md"), (TRACES, "observability.md")])
def test_telemetry_export_is_documented(signal: Signal, name: str) -> None:
    text = page(name)
    for said in (*signal.endpoints, *PROTOCOLS, f"{signal.switch}=none", SERVICE_NAME):
        assert f"`{said}`" in text
    assert re.search(rf"delays the end of the job by\s+{FLUSH_SECONDS:.0f} seconds at most", text)


def test_spans_are_documented_with_their_attributes() -> None:
    calls = {}
    for path in (PACKAGE / "spark").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "span":
                continue
            if isinstance(node.args[0], ast.Constant):
                calls[f"coordination.{node.args[0].value!s}"] = {each.arg for each in node.keywords}
    table = {code(name): set(re.findall(r"`(\w+)`", cell)) for name, _, cell in rows(page("observability.md"), "span")}
    assert set(calls) <= set(table)
    for name, attributes in calls.items():
        assert attributes <= table[name], name


def test_asset_event_fields_are_documented() -> None:
    fields = [name for cell, _ in rows(page("observability.md"), "extra") for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(fields) == sorted(delivered_range("clicks", {}, no_stream))
    assert f"The first {RANGES_LISTED} partitions" in page("observability.md")


WITHOUT_STORE = ("init", "preview", "spark-archive", "job-settings", "plan")
"""Commands that have none of the options that name a store."""


def commands() -> dict[str, Any]:
    """Return the commands of `airflow-coordination` by name, groups left out."""
    found = typer.main.get_command(app.application()).commands  # type: ignore[attr-defined]
    return {name: command for name, command in found.items() if not hasattr(command, "commands")}


def groups() -> list[str]:
    """Return the names of the groups of commands, which have pages of their own."""
    found = typer.main.get_command(app.application()).commands  # type: ignore[attr-defined]
    return [name for name, command in found.items() if hasattr(command, "commands")]


def options(command: Any) -> dict[str, str]:
    """Return the options of a command, as the manual names them, by the name of their parameter."""
    return {p.name: ", ".join(f"`{opt}`" for opt in p.opts) for p in command.params if p.param_type_name == "option"}


def test_commands_are_documented_with_their_options() -> None:
    text = page("commands.md")
    listed = [re.sub(r"[\[\]`]|\(.*", "", name) for name, _ in rows(text, "command", below="# Commands")]
    assert listed == [*commands(), *groups()]
    everywhere = [option for option, _ in rows(text, "option", below="\n## Which store\n")]
    for name, command in commands().items():
        section = text.partition(f"\n### {name}\n")[2].partition("\n#")[0]
        assert section.count(f"$ airflow-coordination {name}")
        own = [option for parameter, option in options(command).items() if parameter not in COMMON]
        assert own == ([option for option, *_ in rows(section, "option")] if own else [])
        common = everywhere[-3:-1] if name in WITHOUT_STORE else everywhere[:-1]
        assert [option for option in options(command).values() if option not in own] == common
    assert everywhere[-1] == "`--help`, `-h`"


def test_supervisor_verbs_are_documented_with_their_options() -> None:
    group = typer.main.get_command(app.application()).commands["supervisor"]  # type: ignore[attr-defined]
    actual = {
        name: {each.strip("`") for parameter, each in options(command).items() if parameter not in (*COMMON, "yes")}
        for name, command in group.commands.items()
    }
    table = rows(page("supervisor_verbs.md"), "command", below="\n## Commands\n")
    documented = {
        code(name).split()[2]: set(re.findall(r"--[a-z-]+", meaning)) - {"--yes", "--json"} for name, meaning in table
    }
    assert documented == actual


def test_named_commands_exist() -> None:
    text = "\n".join([*(path.read_text() for path in PAGES), *texts_of_the_code()])
    assert set(re.findall(r"airflow-coordination ([a-z][a-z-]*)", text)) == {*commands(), *groups()}


@pytest.mark.parametrize("path", [path for path in PAGES if path.parent.name == "docs"], ids=lambda path: path.name)
def test_pages_are_in_the_site_navigation(path: Path) -> None:
    navigation = (REPOSITORY / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\nhooks:")[0]
    assert re.search(rf"^ +- [^:\n]+: {re.escape(path.name)}$", navigation, re.MULTILINE)


def classes_that_a_dag_names() -> Iterator[type[Any]]:
    """Yield operators, sensors, triggers and hooks of the provider, its links, and what `reads` takes."""
    info = get_provider_info()
    modules = {
        m for kind in ("operators", "sensors", "triggers", "hooks") for e in info[kind] for m in e["python-modules"]
    }
    modules |= {name.rpartition(".")[0] for name in info["extra-links"]}
    yield from reads_classes().values()
    for module in map(importlib.import_module, modules):
        for found in vars(module).values():
            if inspect.isclass(found) and found.__module__ == module.__name__ and not found.__name__.startswith("_"):
                yield found


def test_reference_covers_the_classes_of_dags_and_sources() -> None:
    bases = (BaseOperator, BaseTrigger, BaseHook, BaseOperatorLink)
    made_of = [each for each in classes_that_a_dag_names() if issubclass(each, (*bases, Described)) or each is Items]
    decorators = [decorator["class-name"] for decorator in get_provider_info()["task-decorators"]]
    # The seams that code of one's own is written against.
    seams: tuple[Any, ...] = (PartitionSupplier, Page, ReadsSettings, SourceCoordinator, CoordinationStore, open_store)
    named = {f"{each.__module__}.{each.__name__}" for each in (*made_of, *seams, coordinated_ingestion)}
    text = "".join(path.read_text() for path in PAGES if path.name.startswith("reference"))
    listed = set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))
    assert {*named, *decorators, ItemReader.__module__} - listed == set()


def test_json_of_commands_is_documented() -> None:
    fields = [code(name) for name, _ in rows(page("commands.md"), "field", below="\n## For scripts\n")]
    assert sorted(fields) == sorted([*(f.name for f in dataclasses.fields(Partition) if f.compare), "is_parked"])


def test_json_of_an_acknowledgment_set_is_documented() -> None:
    now = datetime.now(UTC)
    example = AcknowledgmentSet(
        set_id="s", partition_key="p", batch_id="b", created_at=now, timeout=timedelta(1), expires_at=now
    )
    assert sorted(code(name) for name, _ in rows(page("commands.md"), "set's field")) == sorted(record_of(example))
    assert [code(name) for name, *_ in rows(page("acknowledgments.md"), "state")] == list(AcknowledgmentState)


def test_http_release_parameters_are_documented() -> None:
    from airflow_provider_coordination.ui.acknowledgments import ReleaseBody, router

    text = page("acknowledgments.md")
    assert [code(name) for name, *_ in rows(text, "body")] == list(ReleaseBody.model_fields)
    routes = {f"{method} /coordination{route.path}" for route in router().routes for method in route.methods}  # type: ignore[attr-defined]
    documented = {re.sub(r"<(\w+)>", "{}", code(call)) for call, _ in rows(text, "call")}
    assert documented == {re.sub(r"{[\w:]+}", "{}", route) for route in routes}


def test_acknowledgment_bounds_are_documented() -> None:
    bounds = dict(rows(page("acknowledgments.md"), ""))
    for what, most in (
        ("references of a set", MAX_REFERENCES),
        ("a handle, a release id", MAX_NAME_CHARACTERS),
        ("a reason", MAX_REASON_CHARACTERS),
        ("acknowledgment timeout, and each extension", MAX_TIMEOUT.days),
        ("ids in the XCom of a job", SETS_NAMED),
    ):
        assert bounds[what].startswith(str(most))


def test_partition_sort_orders_are_documented() -> None:
    table = rows(page("commands.md"), "option", below="\n### partitions\n")
    [meaning] = [text for option, _, text in table if code(option) == "--sort"]
    assert re.findall(r"`(\w+)`", meaning) == list(SortKey)


def test_command_exit_codes_are_documented() -> None:
    documented = [int(code(number)) for number, _ in rows(page("commands.md"), "exit code")]
    assert documented == [0, EXIT_REFUSED, EXIT_USAGE, 130]


def text_of(node: ast.expr) -> str:
    """Return a text of the code with `…` where values go; only `…` for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[\w.]*[sdgfr]", "…", node.value)
    return "…"


@cache
def texts_of_the_code() -> list[str]:
    """Return every text of the package and its programs, with `…` where values go."""
    return [
        text_of(node)
        for path in (*PACKAGE.rglob("*.py"), *(REPOSITORY / "spark_apps").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    ]


def test_documented_messages_exist_in_the_code() -> None:
    pages = (REPOSITORY / "docs").glob("troubleshooting*.md")
    lines = [line for path in pages for line in prose(path.read_text()).splitlines()]
    assert len(lines) > 300
    texts = texts_of_the_code()
    unknown = []
    for message in (code(cells(line)[0]) for line in lines if line.startswith("| `")):
        parts = message.split("…")
        pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
        if not any(parts[0] in text and pattern.search(text) for text in texts):
            unknown.append(message)
    assert unknown == []
