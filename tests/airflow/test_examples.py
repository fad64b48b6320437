"""A system test runs every example of `dags/`, or checks what it submits if its submitter is a cloud."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from airflow import sdk

from airflow_provider_coordination.sensors.intervals import IntervalCompleteSensor
from tests.conftest import REPOSITORY

SUBMITTED_TO_A_CLOUD = ("dataproc_serverless_ingestion", "emr_ingestion", "emr_serverless_ingestion")
READ_BY_OTHERS = ("own_source_reader", "log_file_source")
EXAMPLES = sorted(file for file in (REPOSITORY / "dags").glob("*.py") if file.stem not in READ_BY_OTHERS)
TESTS = "".join(file.read_text() for file in (REPOSITORY / "tests" / "system").rglob("test_*.py"))
OF_SUBMITTERS = (REPOSITORY / "tests" / "airflow" / "test_prepared_jobs.py").read_text()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_dag_is_named_by_a_system_test(example: Path) -> None:
    text = example.read_text()
    dag_ids = re.findall(r"""dag_id=["'](\w+)["']""", text)
    dag_ids += [f"supervise_{name}" for name in re.findall(r"""supervised_ingestion\("specs/(\w+).yaml""", text)]
    assert dag_ids
    tests = OF_SUBMITTERS if example.stem in SUBMITTED_TO_A_CLOUD else TESTS
    assert [dag_id for dag_id in dag_ids if f'"{dag_id}"' not in tests] == []


def test_hour_report_waits_where_assets_have_no_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "PartitionedAssetTimetable", None, raising=False)  # as before Airflow 3.2
    wait = runpy.run_path(str(REPOSITORY / "dags" / "complete_hours.py"))["wait"]
    assert isinstance(wait, IntervalCompleteSensor)
    assert (wait.dag.dag_id, wait.downstream_task_ids) == ("hour_report", {"report"})
    assert type(wait.dag.schedule).__name__ == "CronDataIntervalTimetable"
