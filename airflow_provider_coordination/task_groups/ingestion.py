"""`coordinated_ingestion`: one call for a task group, from finding a source's partitions to the summary of its jobs."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import Asset, BaseOperator, TaskGroup, XComArg, get_current_context, task

from airflow_provider_coordination.airflow_names import REMOVED_PASSES, AirflowFailException
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.intervals import Delivered, IntervalLedger
from airflow_provider_coordination.coordination.registry import registered
from airflow_provider_coordination.decorators import acknowledges_task
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, int_value
from airflow_provider_coordination.operators.claims import check_job
from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator, work_for_jobs
from airflow_provider_coordination.operators.interval_events import IntervalCompleteOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sensors.acknowledgments import AcknowledgmentSensor
from airflow_provider_coordination.sources.reads import Reads
from airflow_provider_coordination.sources.watermarks import watermark_of
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import BY_JOB, DOWNSTREAM, AcknowledgmentSettings

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
SUCCEEDED, FAILED, UPSTREAM_FAILED = "success", "failed", "upstream_failed"
MAX_INTERVALS = 100
"""The maximum number of intervals that one run reports."""
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


def states_of(ti: Any, *task_ids: str) -> Mapping[str, str]:
    """Return the states of tasks of this run, by task and map index."""
    found = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(task_ids), run_ids=[ti.run_id])
    return {name: str(state) for name, state in found.get(ti.run_id, {}).items()}


def fail_if_failed(task_ids: Sequence[str]) -> None:
    """Decide the outcome of a group: what the rule `none_failed` does where it passes removed tasks.

    :param task_ids: the tasks before.
    :raises AirflowFailException: naming those that failed.
    """
    states = states_of(get_current_context()["ti"], *task_ids)
    if failed := sorted(name for name, state in states.items() if state in (FAILED, UPSTREAM_FAILED)):
        raise AirflowFailException(f"failed before: {', '.join(failed)}; their logs have the reasons")


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

    before = states_of(ti, supplier_task_id, plan_task_id)
    for name in (supplier_task_id, plan_task_id):
        if before.get(name) == FAILED:
            log.error("no job was started, because task %s failed; its log has the reason", name)
    supplied, planned = (
        ti.xcom_pull(task_ids=name) if before.get(name) == SUCCEEDED else None
        for name in (supplier_task_id, plan_task_id)
    )
    states: Counter[str] = Counter(states_of(ti, job_task_id).values() if planned else ())
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


OPERATORS_GROUP = "airflow_provider_coordination.operators"
"""The entry points of operators that create the partitions of a kind of source, by the kind's name."""


def coordinated_ingestion(
    ingestion: Ingestion,
    *,
    partitions: Any = None,
    interval: str | Sequence[Any] | None = None,
    deduplicate_against: str | None = None,
    workers: int | str = 1,
    max_workers: int | str = 4,
    partitions_per_worker: int | str = 16,
    pool: str | None = None,
    check: Callable[..., Any] | None = None,
    deferrable: bool | None = None,
    completed: Asset | None = None,
    corrected: Asset | None = None,
    coordination_conn_id: str = CoordinationHook.default_conn_name,
    group_id: str = "ingestion",
    default_args: Mapping[str, Any] | None = None,
    **job_arguments: Any,
) -> TaskGroup:
    """Return a task group that ingests a source, from finding its partitions to a summary of its jobs.

    Its tasks are: `sync_shards` or `create_partitions`, `plan_jobs`, the mapped `ingest`, with acknowledgments `check`
    and `wait_for_acknowledgments`, with `completed` also `find_intervals` and the mapped `interval_complete`, then
    `summarize` and `done`. If there is no work, no job is started: `ingest` is
    skipped, and the summary reports it. A failed job fails the group, after the summary is written.

    :param ingestion: what to ingest: from where, to where, and how. Its `reads` decides which operator creates the
        partitions. If its `acknowledgments` are not by the job, the group waits for them.
    :param partitions: what creates the partitions instead of the supplier of `reads`. Either a task of yours, which
        then runs before the group's tasks, such as a call of a function decorated with `@task.partitions`; or the
        partitions themselves, as for `CreatePartitionsOperator`.
    :param interval: ingest exactly what an interval contains, under its own leases: `"data_interval"` for the
        interval of the run, or its two ends; see `interval_value`. May be a template.
    :param deduplicate_against: the name of the source of live ingestion. The jobs leave out what that source delivers
        of the interval, so that no record is delivered twice. May be a template.
    :param workers: the number of jobs, fewer if there are fewer partitions. `"auto"` derives it from the available
        partitions: for a stream all open ones, even if leased. May be a template.
    :param max_workers: the maximum number of jobs with `"auto"`. May be a template.
    :param partitions_per_worker: the number of partitions for each job with `"auto"`. May be a template.
    :param pool: the Airflow pool of the jobs: its slots bound how many run at once, over all runs and DAGs.
    :param check: a function that checks what the jobs delivered before it is acknowledged. It becomes a task like those
        of `@task.acknowledges`.
    :param deferrable: whether tasks wait in the triggerer if they can; None for Airflow's default.
    :param completed: the asset whose events report complete intervals, if `completes` of the ingestion is set: one task
        for each interval, after the jobs; see `IntervalCompleteOperator`.
    :param corrected: the asset whose events report records that were delivered after their interval was reported.
    :param coordination_conn_id: the connection of type `coordination`.
    :param group_id: the group's id.
    :param default_args: the default arguments of all tasks in the group.
    :param job_arguments: all other arguments are for the jobs; see `CoordinatedSparkSubmitOperator`.
    :raises ValueError: if arguments contradict each other.
    """
    check_job(ingestion, None, job_arguments.get("group"))
    reads, acknowledgments = ingestion.reads, ingestion.acknowledgments
    _check(reads, partitions, check, acknowledgments)
    if check is not None:
        acknowledgments = replace(acknowledgments, by=DOWNSTREAM)
    if interval is not None and _is_task(partitions):
        raise ValueError("'interval' and a task in 'partitions' are both given; the task sets its bounds; remove one")
    if interval is None and deduplicate_against is not None:
        raise ValueError("'deduplicate_against' is given without 'interval'; give 'interval', or remove it")
    source_of_intervals = _check_intervals(ingestion, completed, corrected)
    job_name = job_arguments.pop("name", group_id)
    waiting: dict[str, Any] = {} if deferrable is None else {"deferrable": deferrable}
    group_args: Any = dict(default_args or {})
    with TaskGroup(group_id, default_args=group_args) as group:
        supplied: Any
        source_arguments: dict[str, Any] = {
            "source": ingestion.source,
            "interval": interval,
            "deduplicate_against": deduplicate_against,
            "coordination_conn_id": coordination_conn_id,
        }
        if _is_task(partitions):
            supplied = partitions.output if isinstance(partitions, BaseOperator) else partitions
        else:
            given = {} if partitions is None else {"partitions": partitions}
            creating = creating_operator(reads)
            supplied = creating(task_id="create_partitions", reads=reads, **given, **source_arguments).output
        summary_of_supplier = f"(ti.xcom_pull(task_ids='{supplied.operator.task_id}') or {{}})"
        source_of_run = f"{{{{ {summary_of_supplier}.get('source', '') }}}}"

        planned: Any = task(task_id="plan_jobs", multiple_outputs=False)(plan_jobs)(
            supplied,
            name=job_name,
            workers=workers,
            max_workers=max_workers,
            partitions_per_worker=partitions_per_worker,
            shared=reads.is_endless,
            coordination_conn_id=coordination_conn_id,
        )
        jobs = CoordinatedSparkSubmitOperator.partial(
            task_id="ingest",
            ingestion=replace(ingestion, source=source_of_run, acknowledgments=acknowledgments),
            interval=interval,
            deduplicate_against=deduplicate_against,
            workers=f"{{{{ ti.xcom_pull(task_ids='{planned.operator.task_id}') | length }}}}",
            coordination_conn_id=coordination_conn_id,
            map_index_template="{{ task.name }}",
            **({} if pool is None else {"pool": pool}),
            **waiting,
            **job_arguments,
        ).expand(name=planned)
        before_the_end: list[Any] = [jobs]

        if check is not None:
            # If one job failed, the deliveries of the others are still checked.
            checked: Any = acknowledges_task(
                check,
                task_id="check",
                source=source_of_run,
                coordination_conn_id=coordination_conn_id,
                trigger_rule="all_done",
            )()
            before_the_end[-1] >> checked
            before_the_end.append(checked)
        if acknowledgments.by != BY_JOB:
            wait = AcknowledgmentSensor(
                task_id="wait_for_acknowledgments",
                source=source_of_run,
                coordination_conn_id=coordination_conn_id,
                trigger_rule="all_done" if check is None else "none_failed",
                **waiting,
            )
            before_the_end[-1] >> wait
            before_the_end.append(wait)

        delivered: Any = jobs.output
        summary: Any = task(task_id="summarize", trigger_rule="all_done", multiple_outputs=False)(summarize)(
            delivered,
            supplier_task_id=supplied.operator.task_id,
            plan_task_id=planned.operator.task_id,
            job_task_id=jobs.task_id,
            coordination_conn_id=coordination_conn_id,
        )
        # The summary is written whatever the outcome of the jobs; all tasks decide the outcome of the group.
        before = [planned, *before_the_end, summary]
        if completed is not None:
            found: Any = task(task_id="find_intervals", trigger_rule="all_done")(find_intervals)(
                source_of_intervals, coordination_conn_id=coordination_conn_id
            )
            reporting: dict[str, Any] = {
                "source": source_of_intervals,
                "waits": False,
                "coordination_conn_id": coordination_conn_id,
            }
            intervals = IntervalCompleteOperator.partial(
                task_id="interval_complete",
                asset=completed,
                max_active_tis_per_dag=1,
                **reporting,
            ).expand(number=found)
            before_the_end[-1] >> found
            before += [found, intervals]
            if corrected is not None:
                correct = IntervalCompleteOperator(
                    task_id="interval_corrected",
                    asset=corrected,
                    corrections=True,
                    trigger_rule="all_done",
                    **reporting,
                )
                intervals >> correct
                before.append(correct)
        done: Any
        if REMOVED_PASSES:
            done = EmptyOperator(task_id="done", trigger_rule="none_failed")
        else:
            ids = [getattr(each, "operator", each).task_id for each in before]
            done = task(task_id="done", trigger_rule="all_done")(fail_if_failed)(ids)
        [supplied, planned, before_the_end[-1]] >> summary
        before >> done
    return group


def find_intervals(source: str, *, coordination_conn_id: str) -> list[int]:
    """Return a number for each interval of a source that is complete and was not reported; none if there is none.

    :param source: the source's name.
    :param coordination_conn_id: the connection of type `coordination`.
    """
    view = CoordinationHook(coordination_conn_id).view(source)
    with closing(view.store):
        watermark, counted = watermark_of(view), IntervalLedger(view).fold()
    complete = 0
    if watermark is not None and counted is not None:
        _, ledger = counted
        complete = ledger.complete(Delivered(watermark.until, watermark.is_finished))
    log.info("source=%s: %d intervals to report, watermark %s", source, complete, watermark)
    return list(range(min(complete, MAX_INTERVALS)))


def _check_intervals(ingestion: Ingestion, completed: Asset | None, corrected: Asset | None) -> str:
    """Return the source whose intervals are reported.

    :raises ValueError: if arguments contradict each other.
    """
    if completed is None:
        if corrected is not None:
            raise ValueError("'corrected' is given without 'completed'; give both, or remove it")
        return ""
    if ingestion.completes is None:
        raise ValueError("'completed' is given, but the ingestion counts no intervals; set its 'completes'")
    return ingestion.source or ingestion.reads.default_source


def creating_operator(reads: Reads) -> type[BaseOperator]:
    """Return the operator that creates the partitions of a source, as an entry point of its kind may say."""
    points = registered(OPERATORS_GROUP, reads.kind)
    return points[0].load() if points else CreatePartitionsOperator


def _check(reads: Reads, partitions: Any, check: Any, acknowledgments: AcknowledgmentSettings) -> None:
    if partitions is not None and creating_operator(reads) is not CreatePartitionsOperator:
        raise ValueError(
            f"'partitions' is given, but a source of kind {reads.kind!r} has its own operator that creates them; "
            "remove 'partitions'"
        )
    if check is not None and acknowledgments.by != BY_JOB:
        raise ValueError(
            "'check' and 'by' of AcknowledgmentSettings are both given: the check acknowledges; remove one of them"
        )


def _is_task(partitions: Any) -> bool:
    return isinstance(partitions, BaseOperator | XComArg)
