"""What `pip install` takes: of Spark, the one pair of packages that is tested together."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def dependencies() -> dict[str, SpecifierSet]:
    """The bounds in pyproject.toml, by package."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return {found.name: found.specifier for found in map(Requirement, project["dependencies"])}


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    """The versions in requirements/base.txt, by package; of one that depends on the machine, the last."""
    lines = (REPOSITORY / "requirements" / "base.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {pin.name: next(iter(pin.specifier)).version for pin in found}


def test_both_packages_that_own_sparks_files_are_held_to_the_one_version_that_is_pinned(
    dependencies: dict[str, SpecifierSet], pins: dict[str, str]
) -> None:
    assert pins["pyspark"] == pins["pyspark-client"]
    for name in ("pyspark", "pyspark-client"):
        assert dependencies[name] == SpecifierSet(f"=={pins[name]}")


def test_the_pinned_versions_are_within_the_bounds(dependencies: dict[str, SpecifierSet], pins: dict[str, str]) -> None:
    assert [name for name, bounds in dependencies.items() if pins[name] not in bounds] == []


def test_a_pandas_that_spark_does_not_support_is_out_of_bounds(dependencies: dict[str, SpecifierSet]) -> None:
    assert "3.0.0" not in dependencies["pandas"] and "3.1.1" not in dependencies["pandas"]
