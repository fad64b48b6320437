"""The requirements of `pip install`: tested bounds, and the one compatible pair of Spark packages."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parents[1]
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


def test_both_packages_that_own_sparks_files_are_held_to_the_one_version_that_is_pinned(
    dependencies: dict[str, SpecifierSet],
) -> None:
    pinned = pins("base.txt")
    assert pinned["pyspark"] == pinned["pyspark-client"]
    for name in ("pyspark", "pyspark-client"):
        assert dependencies[name] == SpecifierSet(f"=={pinned[name]}")


def test_spark_comes_with_its_extra_alone(project: dict[str, Any]) -> None:
    assert {Requirement(given).name for given in project["dependencies"]}.isdisjoint(
        {"pyspark", "pyspark-client", "pandas"}
    )


def test_the_pinned_versions_are_within_the_bounds(dependencies: dict[str, SpecifierSet]) -> None:
    pinned = pins("dev.txt")
    assert [name for name, bounds in dependencies.items() if pinned[name] not in bounds] == []


def test_the_lower_bounds_are_the_lowest_versions_that_resolve_together(
    dependencies: dict[str, SpecifierSet],
) -> None:
    lowest = pins("lowest.txt")
    bounds = {
        name: Version(bound.version)
        for name, specifiers in dependencies.items()
        for bound in specifiers
        if bound.operator in (">=", "==")
    }
    assert bounds == {name: Version(lowest[name]) for name in dependencies}


def test_a_pandas_that_spark_does_not_support_is_out_of_bounds(dependencies: dict[str, SpecifierSet]) -> None:
    assert "3.0.0" not in dependencies["pandas"] and "3.1.1" not in dependencies["pandas"]


def test_the_spark_provider_is_bounded_from_above_since_private_parts_of_it_are_used(
    dependencies: dict[str, SpecifierSet],
) -> None:
    assert "7.0.0" not in dependencies["apache-airflow-providers-apache-spark"]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_install_command_of_a_page_installs_spark_by_an_existing_extra(page: str, project: dict[str, Any]) -> None:
    commands = [line for line in (REPOSITORY / page).read_text().splitlines() if line.startswith("pip install ")]
    extras = {extra.strip() for command in commands for extra in command.partition("[")[2].partition("]")[0].split(",")}
    assert "spark" in extras
    assert extras <= set(project["optional-dependencies"])
