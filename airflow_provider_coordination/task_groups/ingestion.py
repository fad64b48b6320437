"""`coordinated_ingestion`: one call for a task group, from finding a source's partitions to the summary of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, TaskGroup, XComArg, task

from airflow_provider_coordination.coordination.registry import registered
from airflow_provider_coordination.decorators.acknowledges import acknowledges_task
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator, check_job
from airflow_provider_coordination.sensors.acknowledgments import AcknowledgmentSensor
from airflow_provider_coordination.sources.reads import Reads
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import BY_JOB, DOWNSTREAM, AcknowledgmentSettings
from airflow_provider_coordination.task_groups.planning import plan_jobs, summarize

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
    coordination_conn_id: str = CoordinationHook.default_conn_name,
    group_id: str = "ingestion",
    default_args: Mapping[str, Any] | None = None,
    **job_arguments: Any,
) -> TaskGroup:
    """Return a task group that ingests a source, from finding its partitions to a summary of its jobs.

    Its tasks are: `sync_shards` or `create_partitions`, `plan_jobs`, the mapped `ingest`, with acknowledgments `check`
    and `wait_for_acknowledgments`, then `summarize` and `done`. If there is no work, no job is started: `ingest` is
    skipped, and the summary reports it. A failed job fails the group, after the summary is written.

    :param ingestion: what to ingest: from where, to where, and how. Its `reads` decides which operator creates the
        partitions. If its `acknowledgments` are not by the job, the group waits for them.
    :param partitions: what creates the partitions instead of the supplier of `reads`. Either a task of yours, which
        then runs before the group's tasks, such as a call of a function decorated with `@task.partitions`; or the
        partitions themselves, as for `CreatePartitionsOperator`.
    :param interval: ingest exactly what an interval contains, under leases of its own: `"data_interval"` for the
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
    :param coordination_conn_id: the connection of type `coordination`.
    :param group_id: the group's id.
    :param default_args: the default arguments of all tasks in the group.
    :param job_arguments: all other arguments are for the jobs; see `CoordinatedSparkSubmitOperator`.
    :raises ValueError: if arguments contradict each other.
    """
    check_job(ingestion, None)
    reads, acknowledgments = ingestion.reads, ingestion.acknowledgments
    _check(reads, partitions, check, acknowledgments)
    if check is not None:
        acknowledgments = replace(acknowledgments, by=DOWNSTREAM)
    if interval is not None and _is_task(partitions):
        raise ValueError("'interval' and a task in 'partitions' are both given; the task sets its bounds; remove one")
    if interval is None and deduplicate_against is not None:
        raise ValueError("'deduplicate_against' is given without 'interval'; give 'interval', or remove it")
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
        done = EmptyOperator(task_id="done", trigger_rule="none_failed")
        [supplied, planned, before_the_end[-1]] >> summary
        [planned, *before_the_end, summary] >> done
    return group


def creating_operator(reads: Reads) -> type[BaseOperator]:
    """Return the operator that creates the partitions of a source, as an entry point of its kind may say."""
    points = registered(OPERATORS_GROUP, reads.kind)
    return points[0].load() if points else CreatePartitionsOperator


def _check(reads: Reads, partitions: Any, check: Any, acknowledgments: AcknowledgmentSettings) -> None:
    if partitions is not None and creating_operator(reads) is not CreatePartitionsOperator:
        raise ValueError(
            f"'partitions' is given, but a source of kind {reads.kind!r} has an operator of its own that creates them; "
            "remove 'partitions'"
        )
    if check is not None and acknowledgments.by != BY_JOB:
        raise ValueError(
            "'check' and 'by' of AcknowledgmentSettings are both given: the check acknowledges; remove one of them"
        )


def _is_task(partitions: Any) -> bool:
    return isinstance(partitions, BaseOperator | XComArg)
