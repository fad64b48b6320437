"""The measure of the structure counts what it says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import structure
from tools.structure import Module


def module(name: str, text: str) -> Module:
    return Module(name, Path(f"{name}.py"), ast.parse(text))


def test_circle_of_modules_is_found_by_any_import() -> None:
    one = module("a.one", "from airflow_provider_coordination.a.two import Two")
    two = module("a.two", "def later():\n    from airflow_provider_coordination.a import one")
    three = module("a.three", "from airflow_provider_coordination.a.one import One")
    assert structure.circles([one, two, three]) == ["a.one ↔ a.two"]


def test_class_name_of_two_modules_is_ambiguous() -> None:
    modules = [
        module("a", "class Plan: ...\nclass _Plan: ..."),
        module("b", "class Plan: ..."),
        module("c", "class C: ..."),
    ]
    assert structure.ambiguous_names(modules) == ["Plan: a, b"]


@pytest.mark.parametrize(("shared", "count"), [(5, 0), (6, 1)])
def test_classes_that_share_six_fields_are_twins(shared: int, count: int) -> None:
    fields = "".join(f"    f{n}: int\n" for n in range(shared))
    modules = [
        module("a", f"class One:\n{fields}    kind: ClassVar[str]\n"),
        module("b", f"class Two:\n{fields}    x: int\n"),
    ]
    assert len(structure.twins(modules)) == count


def test_every_definition_that_names_the_option_is_a_place() -> None:
    described = 'class Options:\n    """:param per_batch: whether."""\n    per_batch: bool = False\n'
    handed_on = "def run(options):\n    use(per_batch=options.per_batch)\n"
    modules = [module("a", f"{described}{handed_on}"), module("b", "def per_batches(): ...")]
    assert structure.option_places(modules) == ["a:Options", "a:run"]


def test_exceeded_bound_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["structure.py"])
    monkeypatch.setitem(structure.BOUNDS, "modules", 1)
    assert structure.main() == 1
    assert "structure: modules: " in capsys.readouterr().out
