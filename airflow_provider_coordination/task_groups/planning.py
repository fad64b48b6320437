"""How many jobs a run has, and what they did: the two small tasks around the Spark jobs of a group."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from airflow.sdk import get_current_context

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured
from airflow_provider_coordination.operators.supplier_task import work_for_jobs
from airflow_provider_coordination.operators.template_values import whole_value

log = logging.getLogger(__name__)

AUTO = "auto"
SUMS = (
    "rounds",
    "records_landed",
    "records_delivered",
    "bytes_delivered",
    "batches_delivered",
    "dead_letters",
    "unrouted",
    "parse_exceptions",
    "pending_acknowledgments",
)
"""What of the jobs' summaries is added up."""
LISTS = ("completed", "lost", "handed_over", "resting")
"""Of what in the jobs' summaries it is told how many there are."""
SHOWN_AT_MOST = 10
"""So many partitions that failed are named."""


def plan_jobs(
    supplied: Mapping[str, Any],
    *,
    name: str,
    workers: int | str,
    max_workers: int | str,
    partitions_per_worker: int | str,
    shared: bool,
    coordination_conn_id: str,
) -> list[str]:
    """Return a name for each job that the run shall have: none where there is nothing to work on.

    :param supplied: what the task before it returned: what found the partitions.
    :param name: what the names begin with.
    :param workers: how many jobs, or `"auto"`: as many as the work that is available asks for.
    :param max_workers: how many at most with `"auto"`.
    :param partitions_per_worker: for how many partitions there is a job with `"auto"`.
    :param shared: whether partitions that other jobs hold count as work.
    :param coordination_conn_id: the connection of type `coordination`.
    :raises AirflowFailException: if a number is not usable.
    """
    with failing_when_misconfigured():
        is_auto = str(workers).strip().lower() == AUTO
        most = _positive("max_workers", max_workers) if is_auto else _positive("workers", workers)
        each = _positive("partitions_per_worker", partitions_per_worker) if is_auto else 1
        source = _source_of(supplied)
        view = CoordinationHook(coordination_conn_id).view(source)
        with closing(view.store):
            suspension = view.suspension()
            work = work_for_jobs(view, most * each, shared=shared)
    if suspension is not None:
        log.warning("source=%s: no job is started, the source is %s", source, suspension)
        return []
    jobs = min(most, math.ceil(work / each))
    log.info("source=%s: %s%d partitions to work on, %d jobs", source, "at least " * (work == most * each), work, jobs)
    return [f"{name}-{number}" for number in range(jobs)]


def summarize(
    supplied: Mapping[str, Any] | None,
    planned: list[str] | None,
    jobs: Iterable[Mapping[str, Any]] | None,
    *,
    job_task_id: str,
    coordination_conn_id: str,
) -> dict[str, Any]:
    """Log and return what a run did: the jobs' summaries in one, how they ended, and where the partitions stand.

    :param supplied: what the task returned that found the partitions; None if it failed.
    :param planned: the names of the jobs; None if that is not known.
    :param jobs: the summaries of those that succeeded.
    :param job_task_id: the mapped task that they are.
    :param coordination_conn_id: the connection of type `coordination`.
    """
    context = get_current_context()
    ti: Any = context["ti"]
    states: Counter[str] = Counter()
    if planned:
        [of_run] = ti.get_task_states(dag_id=ti.dag_id, task_ids=[job_task_id], run_ids=[ti.run_id]).values() or [{}]
        states.update(str(state) for state in of_run.values())
    summary: dict[str, Any] = {
        "source": None if supplied is None else _source_of(supplied),
        "jobs": {"planned": len(planned or ()), **states},
        **merged(jobs or ()),
    }
    if supplied is not None:
        view = CoordinationHook(coordination_conn_id).view(summary["source"])
        with closing(view.store):
            summary["partitions"] = {str(status): n for status, n in view.count_by_status().items()}
    if planned == []:
        log.info("source=%s: nothing to work on, so no job was started", summary["source"])
    log.info("summary of the run:\n%s", "\n".join(f"{key:<24} {value}" for key, value in summary.items()))
    return summary


def merged(jobs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summaries of several jobs in one; small, however many there are."""
    totals: Counter[str] = Counter(dict.fromkeys((*SUMS, *LISTS), 0))
    by_sink: Counter[str] = Counter()
    held: Counter[str] = Counter()
    failed: dict[str, str] = {}
    seconds = 0.0
    for job in jobs:
        totals.update({name: job.get(name) or 0 for name in SUMS})
        totals.update({name: len(job.get(name) or ()) for name in LISTS})
        by_sink.update(job.get("records_by_sink") or {})
        held.update(job.get("held_by_sink") or {})
        failed |= job.get("failed") or {}
        seconds = max(seconds, job.get("seconds") or 0.0)
    return {
        **totals,
        "records_by_sink": dict(by_sink),
        "held_by_sink": dict(held),
        "failed": len(failed),
        "failures": dict(list(failed.items())[:SHOWN_AT_MOST]),
        "seconds": seconds,
    }


def _source_of(supplied: Any) -> str:
    source = supplied.get("source") if isinstance(supplied, Mapping) else None
    if not isinstance(source, str):
        raise ConfigurationError(
            f"the task that creates the partitions returned {supplied!r:.100}, without a 'source': give 'partitions' a "
            "task whose result is that of @task.partitions or of CreatePartitionsOperator"
        )
    return source


def _positive(field: str, value: int | str) -> int:
    number = whole_value(field, value)
    if number is None or number < 1:
        raise ConfigurationError(f"field {field!r} must be at least 1; got {value!r}")
    return number
