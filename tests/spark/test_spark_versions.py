"""One module knows the differences between versions of Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider_coordination.spark.spark_versions import python_of_executors
from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "airflow_provider_coordination"
KNOWS_DIFFERENCES = PACKAGE / "spark" / "spark_versions.py"
KNOWS_INSTALLATIONS = PACKAGE / "versions.py"
VERSION = re.compile(r"[Ss]park \d|pyspark \d|spark[._]version\b|pyspark\.__version__|SPARK-\d")
FEATURE = re.compile(
    r"\.(fromDDL|getCondition|getErrorClass|toArrow|try_cast|_collect_as_arrow)\("
    r"|functions\.(is_valid_utf8|try_parse_json)|pyspark\.sql\.pandas|\bansi\.enabled|SPARK_JOB_CANCELLED"
)
"""What some supported version of Spark does not have, or does otherwise."""


def uses(pattern: re.Pattern[str], *allowed: Path) -> list[str]:
    """Return where other modules of the package match a pattern."""
    return [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in allowed
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("pattern", [VERSION, FEATURE], ids=["a version", "a feature"])
def test_pattern_finds_what_it_is_for(pattern: re.Pattern[str]) -> None:
    assert pattern.search(KNOWS_DIFFERENCES.read_text())


def test_other_modules_name_no_version_of_spark() -> None:
    assert uses(VERSION, KNOWS_DIFFERENCES, KNOWS_INSTALLATIONS) == []


def test_other_modules_use_no_feature_that_versions_lack() -> None:
    assert uses(FEATURE, KNOWS_DIFFERENCES) == []


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version (3, 13) than that in driver 3.11", "3.13"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11", "3.9"),
        ('Error from python worker:\n  Traceback\n  File "/usr/lib/python3.9/runpy.py", line 197', "3.9"),
        ("Python in worker has different luck", None),
    ],
    ids=["Spark 3.5", "Spark 4", "a worker that cannot be imported", "something else"],
)
def test_python_of_executors_is_read_from_each_version(text: str, python: str | None) -> None:
    assert python_of_executors(text) == python
