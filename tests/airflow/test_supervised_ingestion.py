"""A spec becomes a DAG that supervises its source, without opening a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_coordination.operators.supervise import SuperviseOperator
from airflow_provider_coordination.task_groups.supervised import supervised_ingestion
from tests.support.airflow_dags import DagBag

IMPORT = "from airflow_provider_coordination.task_groups.supervised import supervised_ingestion\n"


def dags_of(folder: Path, call: str) -> dict[str, SuperviseOperator]:
    """Return the task of each DAG that a file of two lines makes, by the DAG's name."""
    (folder / "supervised.py").write_text(f"{IMPORT}dags = {call}\n")
    bag = DagBag(str(folder))
    assert bag.import_errors == {}
    return {dag_id: dag.get_task("supervise") for dag_id, dag in bag.dags.items()}


def test_dag_takes_two_lines(tmp_path: Path) -> None:
    [(dag_id, task)] = dags_of(tmp_path, 'supervised_ingestion("specs/clicks.yaml")').items()

    assert (dag_id, task.spec_file) == ("supervise_clicks", str(tmp_path / "specs" / "clicks.yaml"))


def test_folder_of_specs_gives_a_folder_of_dags(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    for name in ("clicks.yaml", "orders.json", "README.md"):
        (tmp_path / "specs" / name).write_text("not opened")

    assert set(dags_of(tmp_path, 'supervised_ingestion("specs")')) == {"supervise_clicks", "supervise_orders"}


def test_spec_submitted_elsewhere_has_a_dag_named_by_source(tmp_path: Path) -> None:
    [(dag_id, task)] = dags_of(tmp_path, 'supervised_ingestion(source="clicks")').items()

    assert (dag_id, task.source, task.spec_file) == ("supervise_clicks", "clicks", None)


def test_dag_runs_forever_one_run_at_a_time(tmp_path: Path) -> None:
    [dag] = supervised_ingestion(tmp_path / "clicks.yaml", tags=["mine"], default_args={"owner": "me"})
    task = dag.get_task("supervise")

    assert (dag.timetable.__class__.__name__, dag.max_active_runs, dag.catchup) == ("ContinuousTimetable", 1, False)
    assert (dag.tags, task.owner, task.retries > 100) == ({"mine"}, "me", True)


@pytest.mark.parametrize("arguments", [{}, {"specs": "specs", "source": "clicks"}])
def test_dag_needs_specs_or_a_source(arguments: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either 'specs'"):
        supervised_ingestion(**arguments)


def test_invalid_dag_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'all clicks' cannot be part of a DAG's name"):
        supervised_ingestion("specs/all clicks.yaml")
