"""A whole Airflow, with real Spark jobs, that all tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.local_kinesis import LocalKinesis
from tests.support.standalone import Standalone, connect_aws, starting_airflow


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared Airflow and its store are."""
    return tmp_path_factory.mktemp("supervisor")


@pytest.fixture(scope="package")
def airflow(kinesis: LocalKinesis, java: str, folder: Path) -> Iterator[Standalone]:
    """An Airflow with the DAGs of this folder and the example that supervises."""
    with starting_airflow(folder, Path(__file__).parent / "dags", ["supervise_clicks"]) as airflow:
        airflow.wait_for_dags()
        connect_aws(airflow, kinesis)
        yield airflow
