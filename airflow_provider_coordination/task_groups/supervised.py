"""`supervised_ingestion`: makes a DAG that supervises a source from a spec, and one DAG for each spec in a folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.operators.supervise import SuperviseOperator
from airflow_provider_coordination.supervisor.spec_file import SUFFIXES

PREFIX = "supervise_"
RETRIES = 1000
"""A supervisor keeps trying: what stops it, such as an unavailable store, may be over at the next try."""
RETRY_DELAY = timedelta(seconds=30)


def supervised_ingestion(
    specs: str | Path | None = None,
    *,
    source: str | None = None,
    connect: bool = True,
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
    :param coordination_conn_id: the connection of type `coordination`, if the spec names none.
    :param dag_arguments: further arguments of each `DAG`, such as `tags`; `default_args` apply to the task.
    :raises ValueError: if neither or both of `specs` and `source` are given, or a name is not valid for a DAG.
    """
    if (specs is None) == (source is None):
        raise ValueError("supervised_ingestion: give either 'specs', a file or a folder, or 'source'")
    arguments: dict[str, Any] = {
        "connect": connect,
        "coordination_conn_id": coordination_conn_id,
        "dag_arguments": dag_arguments,
    }
    if source is not None:
        return [_dag(source, source=source, **arguments)]
    caller = sys._getframe(1).f_globals.get("__file__")
    folder = Path.cwd() if caller is None else Path(caller).resolve().parent
    return [_dag(file.stem, spec_file=str(file), **arguments) for file in _files(folder / str(specs))]


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())


def _dag(name: str, *, dag_arguments: dict[str, Any], **arguments: Any) -> DAG:
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
        SuperviseOperator(task_id="supervise", **arguments)
    return dag
