"""`coordinated_ingestion`: from finding the partitions of a source to the summary of its jobs, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, TaskGroup, XComArg, task

from airflow_provider_coordination.decorators.acknowledges import acknowledges_task
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.moved_arguments import check_arguments
from airflow_provider_coordination.operators.reads.reads import Created, Reads
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.operators.writes.writes import Writes
from airflow_provider_coordination.sensors.acknowledgments import AcknowledgmentSensor
from airflow_provider_coordination.spark.job_settings import BY_JOB, DOWNSTREAM, AcknowledgmentSettings
from airflow_provider_coordination.task_groups.planning import plan_jobs, summarize


def coordinated_ingestion(
    *,
    reads: Reads | None = None,
    writes: Writes | Sequence[Writes] | None = None,
    source: str | None = None,
    partitions: Any = None,
    interval: str | Sequence[Any] | None = None,
    deduplicate_against: str | None = None,
    workers: int | str = 1,
    max_workers: int | str = 4,
    partitions_per_worker: int | str = 16,
    pool: str | None = None,
    check: Callable[..., Any] | None = None,
    acknowledgments: AcknowledgmentSettings | None = None,
    deferrable: bool | None = None,
    coordination_conn_id: str = CoordinationHook.default_conn_name,
    group_id: str = "ingestion",
    default_args: Mapping[str, Any] | None = None,
    **job_arguments: Any,
) -> TaskGroup:
    """Return a task group that ingests a source, from finding its partitions to a summary of what the jobs did.

    Its tasks: `sync_shards` or `create_partitions`, `plan_jobs`, the mapped `ingest`, with acknowledgments `check`
    and `wait_for_acknowledgments`, then `summarize` and `done`. Where there is nothing to work on, no job is started:
    `ingest` is skipped, and the summary says so. A job that fails fails the group, once the summary is written.

    :param reads: what is read: one of the classes of `operators.reads`. It says which operator creates its partitions.
    :param writes: where to: one of the classes of `operators.writes`, or a list of them.
    :param source: the source's name; by default what `reads` calls it.
    :param partitions: what creates the partitions instead of the supplier of `reads`: a task of yours, such as a call
        of a function decorated with `@task.partitions`, which then comes before the group's; or the partitions
        themselves, as for `CreatePartitionsOperator`.
    :param interval: ingest exactly what there is of an interval, under leases of its own: `"data_interval"` for that of
        the run, or its ends; see `interval_value`. May be a template.
    :param deduplicate_against: the source of live ingestion, by its name: what it delivers, of the interval, is left to
        it, so that no record is delivered twice. May be a template.
    :param workers: how many jobs there are, fewer where there are fewer partitions; `"auto"` for as many as the
        available partitions ask for: of a stream all that are open, whoever holds them. May be a template.
    :param max_workers: how many jobs there are at most with `"auto"`. May be a template.
    :param partitions_per_worker: for how many partitions there is a job with `"auto"`. May be a template.
    :param pool: the Airflow pool of the jobs: its slots bound how many run at once, over all runs and DAGs.
    :param check: a function that looks at what the jobs delivered before it counts as such: it becomes a task like
        those of `@task.acknowledges`.
    :param acknowledgments: who says that a batch is delivered, where that is not a `check`, and how long that may take;
        see `CoordinatedSparkSubmitOperator`. Where it is not the job, the group waits for it.
    :param deferrable: whether tasks that can wait in the triggerer do; None for Airflow's default.
    :param coordination_conn_id: the connection of type `coordination`.
    :param group_id: the group's id.
    :param default_args: of all tasks of the group.
    :param job_arguments: everything else is for the jobs; see `CoordinatedSparkSubmitOperator`.
    :raises ValueError: if arguments contradict each other.
    """
    acknowledgments = acknowledgments or AcknowledgmentSettings()
    check_arguments("coordinated_ingestion", job_arguments, reads=reads, writes=writes)
    assert reads is not None
    _check(reads, partitions, check, acknowledgments)
    if check is not None:
        acknowledgments = replace(acknowledgments, by=DOWNSTREAM)
    if interval is not None and _is_task(partitions):
        raise ValueError("'interval' is what a supplier is told; a task that creates partitions knows its own bounds")
    if interval is None and deduplicate_against is not None:
        raise ValueError("'deduplicate_against' goes with 'interval': it says what of an interval is left out")
    job_name = job_arguments.pop("name", group_id)
    waiting: dict[str, Any] = {} if deferrable is None else {"deferrable": deferrable}
    of_all: Any = dict(default_args or {})
    with TaskGroup(group_id, default_args=of_all) as group:
        supplied: Any
        of_source: dict[str, Any] = {
            "source": source,
            "interval": interval,
            "deduplicate_against": deduplicate_against,
            "coordination_conn_id": coordination_conn_id,
        }
        if isinstance(reads, Created):
            supplied = cast(Any, reads.creating(**of_source)).output
        elif _is_task(partitions):
            supplied = partitions.output if isinstance(partitions, BaseOperator) else partitions
        else:
            supplied = CreatePartitionsOperator(
                task_id="create_partitions",
                reads=reads,
                partitions=partitions,
                **of_source,
            ).output
        of_run = f"(ti.xcom_pull(task_ids='{supplied.operator.task_id}') or {{}})"
        source_of_run = f"{{{{ {of_run}.get('source', '') }}}}"

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
            reads=reads,
            source=source_of_run,
            interval=interval,
            deduplicate_against=deduplicate_against,
            writes=writes,
            acknowledgments=acknowledgments,
            workers=f"{{{{ ti.xcom_pull(task_ids='{planned.operator.task_id}') | length }}}}",
            coordination_conn_id=coordination_conn_id,
            map_index_template="{{ task.name }}",
            **({} if pool is None else {"pool": pool}),
            **waiting,
            **job_arguments,
        ).expand(name=planned)
        before_the_end: list[Any] = [jobs]

        if check is not None:
            # Where one job failed, what the others delivered is checked all the same.
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
            supplied,
            planned,
            delivered,
            job_task_id=jobs.task_id,
            coordination_conn_id=coordination_conn_id,
        )
        # The summary is written however the jobs ended; how the group ends, all of its tasks decide.
        done = EmptyOperator(task_id="done", trigger_rule="none_failed")
        before_the_end[-1] >> summary
        [planned, *before_the_end, summary] >> done
    return group


def _check(reads: Reads, partitions: Any, check: Any, acknowledgments: AcknowledgmentSettings) -> None:
    if isinstance(reads, Created) and partitions is not None:
        raise ValueError(
            f"'partitions' is given, and a source of kind {reads.kind!r} has an operator of its own that creates them: "
            "leave it out"
        )
    if check is not None and acknowledgments.by != BY_JOB:
        raise ValueError(
            "'check' and 'by' of AcknowledgmentSettings are both given: the check acknowledges; remove one of them"
        )


def _is_task(partitions: Any) -> bool:
    return isinstance(partitions, BaseOperator | XComArg)
