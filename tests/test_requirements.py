"""The requirements of `pip install`: tested bounds, and the compatible pairs of Spark packages."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from airflow_provider_coordination.versions import TESTED_SPARKS

REPOSITORY = Path(__file__).resolve().parents[1]
CONSTRAINTS = sorted((REPOSITORY / "requirements").glob("constraints-*.txt"))
PACKAGE = "airflow-provider-coordination"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def dependencies(project: dict[str, Any]) -> dict[str, SpecifierSet]:
    """The bounds in pyproject.toml, by package, including the extras."""
    given = chain(project["dependencies"], *project["optional-dependencies"].values())
    return {found.name: found.specifier for found in map(Requirement, given)}


def pins(name: str) -> dict[str, str]:
    """The versions in a file of pins, by package; the last one if it depends on the machine."""
    lines = (REPOSITORY / "requirements" / name).read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {pin.name: next(iter(pin.specifier)).version for pin in found}


@pytest.mark.parametrize("name", ["base.txt", "dev.txt", "lowest.txt", *(path.name for path in CONSTRAINTS)])
def test_pins_have_one_version_of_both_spark_packages(name: str) -> None:
    pinned = pins(name)
    assert pinned["pyspark"] == pinned["pyspark-client"]


def test_spark_packages_have_the_bounds_of_the_tested_versions(dependencies: dict[str, SpecifierSet]) -> None:
    for name in ("pyspark", "pyspark-client"):
        tested = [f"{major}.{minor}.0" for major, minor in TESTED_SPARKS if (major, minor) >= (4, 0)]
        assert [version for version in tested if version not in dependencies[name]] == []
        assert "3.5.9" not in dependencies[name] and "5.0.0" not in dependencies[name]


def test_spark_is_installed_by_its_extra_only(project: dict[str, Any]) -> None:
    assert {Requirement(given).name for given in project["dependencies"]}.isdisjoint(
        {"pyspark", "pyspark-client", "pandas"}
    )


def test_pinned_versions_are_within_the_bounds(dependencies: dict[str, SpecifierSet]) -> None:
    pinned = pins("dev.txt")
    assert [name for name, bounds in dependencies.items() if pinned[name] not in bounds] == []


def test_lower_bounds_are_the_lowest_versions_of_any_list(
    dependencies: dict[str, SpecifierSet],
) -> None:
    lists = [pins("lowest.txt"), *(pins(path.name) for path in CONSTRAINTS)]
    bounds = {
        name: Version(bound.version)
        for name, specifiers in dependencies.items()
        for bound in specifiers
        if bound.operator in (">=", "==")
    }
    lowest = {name: min(Version(each[name]) for each in lists if name in each) for name in dependencies}
    assert bounds == lowest


def test_pandas_unsupported_by_spark_is_out_of_bounds(dependencies: dict[str, SpecifierSet]) -> None:
    assert "3.0.0" not in dependencies["pandas"] and "3.1.1" not in dependencies["pandas"]


def test_spark_provider_is_bounded_above_for_its_private_parts(
    dependencies: dict[str, SpecifierSet],
) -> None:
    assert "7.0.0" not in dependencies["apache-airflow-providers-apache-spark"]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_documented_install_command_uses_an_existing_spark_extra(page: str, project: dict[str, Any]) -> None:
    commands = [line for line in (REPOSITORY / page).read_text().splitlines() if line.startswith("pip install ")]
    extras = {extra.strip() for command in commands for extra in command.partition("[")[2].partition("]")[0].split(",")}
    assert "spark" in extras
    assert extras <= set(project["optional-dependencies"])


def test_installing_page_lists_all_extras_and_the_pinned_spark(project: dict[str, Any]) -> None:
    text = (REPOSITORY / "docs" / "installing.md").read_text()
    table = text[text.index("| extra |") :].partition("\n\n")[0]
    named = {extra for row in table.splitlines()[2:] for extra in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(project["optional-dependencies"])
    pinned = pins("constraints-3.3.txt")
    assert set(re.findall(r"^(?:AIRFLOW=)(.+)$", text, re.MULTILINE)) == {pinned["apache-airflow"]}
    assert set(re.findall(r"pyspark(?:-client)?==([\d.]+)", text)) == {pinned["pyspark"]}


@pytest.mark.parametrize("path", CONSTRAINTS, ids=lambda path: path.stem)
def test_lists_of_each_airflow_are_within_the_bounds(path: Path, dependencies: dict[str, SpecifierSet]) -> None:
    pinned = pins(path.name)
    checked = pinned.keys() & dependencies.keys()
    assert len(checked) > 20
    assert {name: pinned[name] for name in checked if pinned[name] not in dependencies[name]} == {}
