"""The two small tasks around the Spark jobs of a group: they plan the number of jobs, and summarize the results."""

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
from airflow_provider_coordination.operators.template_values import int_value

log = logging.getLogger(__name__)

AUTO = "auto"
SUMMED_FIELDS = (
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
"""The counts that are summed over the jobs' summaries."""
COUNTED_FIELDS = ("completed", "lost", "handed_over", "resting")
"""The lists in the jobs' summaries whose lengths are summed."""
SUCCEEDED, FAILED = "success", "failed"
MAX_SHOWN = 10
"""The maximum number of failed partitions that a summary names."""


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
    """Return a name for each job of the run; none if there is no work.

    :param supplied: the result of the task that found the partitions.
    :param name: the prefix of the names.
    :param workers: the number of jobs, or `"auto"` to derive it from the available work.
    :param max_workers: the maximum number of jobs with `"auto"`.
    :param partitions_per_worker: the number of partitions for each job with `"auto"`.
    :param shared: whether partitions that other jobs hold count as work.
    :param coordination_conn_id: the connection of type `coordination`.
    :raises AirflowFailException: if a number is not valid.
    """
    with failing_when_misconfigured():
        is_auto = str(workers).strip().lower() == AUTO
        max_jobs = _positive("max_workers", max_workers) if is_auto else _positive("workers", workers)
        each = _positive("partitions_per_worker", partitions_per_worker) if is_auto else 1
        source = _source_of(supplied)
        view = CoordinationHook(coordination_conn_id).view(source)
        with closing(view.store):
            suspension = view.suspension()
            work = work_for_jobs(view, max_jobs * each, shared=shared)
    if suspension is not None:
        log.warning("source=%s: no job is started, the source is %s", source, suspension)
        return []
    jobs = min(max_jobs, math.ceil(work / each))
    prefix = "at least " if work == max_jobs * each else ""
    log.info("source=%s: %s%d partitions to work on, %d jobs", source, prefix, work, jobs)
    return [f"{name}-{number}" for number in range(jobs)]


def summarize(
    jobs: Iterable[Mapping[str, Any]] | None,
    *,
    supplier_task_id: str,
    plan_task_id: str,
    job_task_id: str,
    coordination_conn_id: str,
) -> dict[str, Any]:
    """Log and return the summary of a run: the merged job summaries, the states of the jobs, and the partition counts.

    It reads the results of tasks that succeeded only, because Airflow logs an error for each result that is missing.

    :param jobs: the summaries of the jobs that succeeded.
    :param supplier_task_id: the id of the task that found the partitions.
    :param plan_task_id: the id of the task that planned the jobs.
    :param job_task_id: the id of the jobs' mapped task.
    :param coordination_conn_id: the connection of type `coordination`.
    """
    context = get_current_context()
    ti: Any = context["ti"]

    def states_of(*task_ids: str) -> Mapping[str, str]:
        found = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(task_ids), run_ids=[ti.run_id])
        return {name: str(state) for name, state in found.get(ti.run_id, {}).items()}

    before = states_of(supplier_task_id, plan_task_id)
    for name in (supplier_task_id, plan_task_id):
        if before.get(name) == FAILED:
            log.error("no job was started, because task %s failed; its log has the reason", name)
    supplied, planned = (
        ti.xcom_pull(task_ids=name) if before.get(name) == SUCCEEDED else None
        for name in (supplier_task_id, plan_task_id)
    )
    states: Counter[str] = Counter(states_of(job_task_id).values() if planned else ())
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
        log.info("source=%s: no work, so no job was started", summary["source"])
    log.info("summary of the run:\n%s", "\n".join(f"{key:<24} {value}" for key, value in summary.items()))
    return summary


def merged(jobs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the summaries of several jobs into one, whose size is bounded."""
    totals: Counter[str] = Counter(dict.fromkeys((*SUMMED_FIELDS, *COUNTED_FIELDS), 0))
    by_sink: Counter[str] = Counter()
    held: Counter[str] = Counter()
    failed: dict[str, str] = {}
    seconds = 0.0
    for job in jobs:
        totals.update({name: job.get(name) or 0 for name in SUMMED_FIELDS})
        totals.update({name: len(job.get(name) or ()) for name in COUNTED_FIELDS})
        by_sink.update(job.get("records_by_sink") or {})
        held.update(job.get("held_by_sink") or {})
        failed |= job.get("failed") or {}
        seconds = max(seconds, job.get("seconds") or 0.0)
    return {
        **totals,
        "records_by_sink": dict(by_sink),
        "held_by_sink": dict(held),
        "failed": len(failed),
        "failures": dict(list(failed.items())[:MAX_SHOWN]),
        "seconds": seconds,
    }


def _source_of(supplied: Any) -> str:
    source = supplied.get("source") if isinstance(supplied, Mapping) else None
    if not isinstance(source, str):
        raise ConfigurationError(
            f"the task that creates the partitions returned {supplied!r:.100}, without a 'source'; give 'partitions' a "
            "task that returns the result of @task.partitions or CreatePartitionsOperator"
        )
    return source


def _positive(field: str, value: int | str) -> int:
    number = int_value(field, value)
    if number is None or number < 1:
        raise ConfigurationError(f"field {field!r} must be at least 1; got {value!r}")
    return number
