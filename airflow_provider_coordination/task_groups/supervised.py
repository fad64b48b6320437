"""`supervised_ingestion`: makes a DAG that supervises a source from a spec, and one DAG for each spec in a folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset

from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.operators.interval_events import IntervalCompleteOperator
from airflow_provider_coordination.operators.supervise import SuperviseOperator
from airflow_provider_coordination.supervisor.spec_file import SUFFIXES

PREFIX, INTERVALS_PREFIX = "supervise_", "intervals_"
RETRIES = 1000
"""A supervisor keeps trying: what stops it, such as an unavailable store, may be over at the next try."""
RETRY_DELAY = timedelta(seconds=30)


def supervised_ingestion(
    specs: str | Path | None = None,
    *,
    source: str | None = None,
    connect: bool = True,
    completed: Asset | None = None,
    corrected: Asset | None = None,
    coordination_conn_id: str = CoordinationHook.default_conn_name,
    **dag_arguments: Any,
) -> list[DAG]:
    """Make the DAGs that supervise sources, one for each spec; each is registered with the calling module.

    A DAG is named `supervise_` plus the name of its file, or of its source. It runs on `@continuous`, one run at a
    time, with one task, `supervise`; see `SuperviseOperator`. This function opens no file: an invalid or missing spec
    does not make the DAG disappear, and the supervisor continues with the stored spec.

    :param specs: a spec file, or a folder of them; relative to the file of the calling module.
    :param source: the name of a source whose spec is submitted by command line or HTTP, instead of `specs`.
    :param connect: whether to query the source before a spec that changes the work is submitted; False if Airflow's
        workers cannot reach it.
    :param completed: the asset whose events report complete intervals, if the specs have `completes`. A second DAG for
        each spec, `intervals_` plus the same name, waits for them; see `IntervalCompleteOperator`.
    :param corrected: the asset whose events report records that were delivered after their interval was reported.
    :param coordination_conn_id: the connection of type `coordination`, if the spec names none.
    :param dag_arguments: further arguments of each `DAG`, such as `tags`; `default_args` apply to the task.
    :raises ValueError: if neither or both of `specs` and `source` are given, or a name is not valid for a DAG; also for
        `corrected` without `completed`.
    """
    if (specs is None) == (source is None):
        raise ValueError("supervised_ingestion: give either 'specs', a file or a folder, or 'source'")
    if corrected is not None and completed is None:
        raise ValueError("supervised_ingestion: 'corrected' is given without 'completed'; give both, or remove it")
    arguments: dict[str, Any] = {
        "connect": connect,
        "coordination_conn_id": coordination_conn_id,
        "dag_arguments": dag_arguments,
        "completed": completed,
        "corrected": corrected,
    }
    if source is not None:
        return _dags(source, source=source, **arguments)
    caller = sys._getframe(1).f_globals.get("__file__")
    folder = Path.cwd() if caller is None else Path(caller).resolve().parent
    files = _files(folder / str(specs))
    return [dag for file in files for dag in _dags(file.stem, spec_file=str(file), **arguments)]


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())


def _dags(
    name: str,
    *,
    dag_arguments: dict[str, Any],
    completed: Asset | None,
    corrected: Asset | None,
    connect: bool,
    **arguments: Any,
) -> list[DAG]:
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(
            f"supervised_ingestion: {name!r} cannot be part of a DAG's name; use letters, digits, '_', '-' and '.'"
        )
    arguments_of_dag = {
        "description": f"Supervises the ingestion of {name}",
        "start_date": datetime(2026, 1, 1, tzinfo=UTC),
        "tags": ["coordination", "supervisor"],
        **dag_arguments,
        "default_args": {"retries": RETRIES, "retry_delay": RETRY_DELAY, **dag_arguments.get("default_args", {})},
    }
    with DAG(PREFIX + name, schedule="@continuous", catchup=False, max_active_runs=1, **arguments_of_dag) as dag:
        SuperviseOperator(task_id="supervise", connect=connect, **arguments)
    if completed is None:
        return [dag]
    arguments_of_dag["description"] = f"Reports the complete intervals of {name}"
    name = INTERVALS_PREFIX + name
    with DAG(name, schedule="@continuous", catchup=False, max_active_runs=1, **arguments_of_dag) as intervals:
        complete = IntervalCompleteOperator(task_id="interval_complete", asset=completed, **arguments)
        if corrected is not None:
            correct = IntervalCompleteOperator(
                task_id="interval_corrected", asset=corrected, corrections=True, waits=False, **arguments
            )
            complete >> correct
    return [dag, intervals]
