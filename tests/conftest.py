"""Fixtures of every test: a separate Airflow home, no AWS account, and the requested servers."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
REPOSITORY = TESTS.parent


def _isolate_airflow() -> None:
    """Airflow reads its environment at its import, so this comes before any, and imports nothing itself."""
    for name in [name for name in os.environ if name.startswith(("AIRFLOW_", "AIRFLOW__"))]:
        del os.environ[name]
    home = tempfile.mkdtemp(prefix="coordination-airflow-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ.update(
        {
            "AIRFLOW_HOME": home,
            "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        }
    )


def _isolate_aws() -> None:
    """No test may reach a real account by way of whatever the machine's user is logged in to."""
    for name in (
        "ACCESS_KEY_ID",
        "SECRET_ACCESS_KEY",
        "SESSION_TOKEN",
        "PROFILE",
        "REGION",
        "DEFAULT_REGION",
        "ENDPOINT_URL",
    ):
        os.environ.pop(f"AWS_{name}", None)
    os.environ.update(
        {
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    )


def _spare_java() -> None:
    """Let every JVM begin quickly, as nearly all live for seconds; those of Spark by an archive of its classes.

    What a JVM says of archives that are not its own would stand between the words of programs that are read.
    """
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable"]
    archive = REPOSITORY / ".venv" / "servers" / "spark.jsa"
    if archive.exists():
        from airflow_provider_coordination.spark.class_archive import archive_option

        options.append(archive_option(str(archive)))
    os.environ.setdefault("JAVA_TOOL_OPTIONS", " ".join(options))


_isolate_airflow()
_isolate_aws()
_spare_java()
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("TZ", "UTC")

# Airflow and its kin are hundreds of thousands of objects that stay: looking through them all time and again takes a
# third of the unit tests' time.
gc.set_threshold(100_000, 50, 100)

pytest_plugins = [
    "tests.support.seed",
    "tests.support.depth",
    "tests.support.scheduling",
    "tests.support.shared_servers",
    "tests.support.servers",
    "tests.support.kinesis_server.fixtures",
]


def pytest_itemcollected(item: pytest.Item) -> None:
    """The folder decides the marker: a test cannot be in one of these folders without it. Nor can one start Spark."""
    folder = item.path.parts[len(TESTS.parts)]
    if folder in ("deep", "integration", "system"):
        item.add_marker(folder)
    if "start_spark" in getattr(item, "fixturenames", ()):
        item.add_marker("integration")


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """A test that leaves our logs cut off fails itself, and not those after it that look for a message."""
    yield
    assert not logging.root.manager.disable
    cut_off = [
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if name.startswith("airflow_provider_coordination")
        and isinstance(logger, logging.Logger)
        and (logger.level or logger.disabled or not logger.propagate)
    ]
    assert not cut_off, f"these loggers are cut off: {cut_off}"
