"""The pages about specs agree with the code in keys, defaults, errors, examples and translations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from airflow_provider_coordination.cli.app import application
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.druid import fields, filters
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file, read_spec_text
from airflow_provider_coordination.supervisor.spec_keys import reads_classes
from tests.test_docs import REPOSITORY, blocks, code, page, rows


def test_every_source_kind_is_documented_with_its_class() -> None:
    documented = {
        code(kind): code(cls) for kind, cls, _ in rows(page("specs.md"), "`reads`", below="\n## Sources and sinks\n")
    }
    assert documented == {kind: cls.__name__ for kind, cls in reads_classes().items()}


def test_spec_example_is_valid() -> None:
    example, _ = blocks(page("specs.md"), "yaml")
    assert IngestionSpec.read(read_spec_text(example, "the example")).source == "clicks"


def test_spec_of_a_followed_table_is_the_example() -> None:
    [documented] = blocks(page("dynamodb_lake.md"), "yaml")
    example, _ = read_spec_file(REPOSITORY / "dags" / "specs" / "orders.yaml")
    assert read_spec_text(documented, "the page") == example


@pytest.mark.parametrize("path", sorted((REPOSITORY / "dags" / "specs").iterdir()), ids=lambda path: path.name)
def test_specs_beside_the_example_dags_are_valid(path: Path) -> None:
    mapping, _ = read_spec_file(path)
    IngestionSpec.read(mapping)


def test_python_example_is_a_valid_spec() -> None:
    _, example = blocks(page("specs.md"), "python")
    made: dict[str, Any] = {}
    exec(example, made)
    assert IngestionSpec.read(made["spec"].to_mapping()) == made["spec"]


def test_every_spec_command_is_documented() -> None:
    group = typer.main.get_command(application()).commands["spec"]  # type: ignore[attr-defined]
    listed = [re.findall(r"spec ([a-z-]+)", command)[0] for command, _ in rows(page("specs.md"), "command")]
    assert listed == list(group.commands)


@pytest.mark.parametrize(
    ("number", "path", "value"),
    [
        (0, ("task_count",), 4),
        (1, ("taskCount",), 4),
        (2, ("workers",), 4),
        (3, ("supervise", "task_duration"), "1h"),
        (4, ("reads",), {"kafka": {}}),
        (5, ("supervise", "task_count"), 0),
        (6, ("supervise", "late_message_rejection_start"), "2026-01-01T00:00:00Z"),
        (9, ("supervise", "event_time"), "time"),
    ],
)
def test_errors_read_as_documented(number: int, path: tuple[str, ...], value: Any) -> None:
    _, answer = rows(page("specs.md"), "written")[number]
    spec: Any = read_spec_text(blocks(page("specs.md"), "yaml")[0], "the example")
    place = spec
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(ConfigurationError) as raised:
        IngestionSpec.read(spec)
    assert code(answer).removesuffix(", ...") in str(raised.value)


@pytest.mark.parametrize(
    ("heading", "section"),
    [
        ("\n## How each field is translated\n", ""),
        ("\n### dataSchema\n", "dataSchema"),
        ("\n### ioConfig\n", "ioConfig"),
        ("\n### autoScalerConfig\n", fields.AUTO_SCALE),
        ("\n### tuningConfig\n", "tuningConfig"),
    ],
)
def test_every_druid_field_has_the_documented_row(heading: str, section: str) -> None:
    documented = [(code(n), v, code(p), note) for n, v, p, note in rows(page("druid.md"), "field", below=heading)]
    known = [each for each in fields.FIELDS if each.name.rpartition(".")[0] == section]
    assert len(known) > 2
    assert sorted(documented) == sorted(
        (each.name, each.outcome.value, each.target or "-", each.note) for each in known
    )


def test_every_translated_filter_is_documented() -> None:
    documented = {name for cell, _ in rows(page("druid.md"), "filter") for name in re.findall(r"`(\w+)`", cell)}
    translated = set(filters.Filters({}, {})._writers)
    assert documented == translated | {"and", "or", "not", "true", "false"}


def test_page_that_names_the_schema_links_to_it() -> None:
    assert (REPOSITORY / "docs" / "spec.schema.json").is_file()
    assert "[spec.schema.json](spec.schema.json)" in page("specs.md")
