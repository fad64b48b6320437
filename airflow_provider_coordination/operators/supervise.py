"""Task that supervises a source: it takes a turn, then waits in the triggerer until the next turn is needed.

A turn starts jobs and ends them by force through the launcher of this module.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.airflow_names import AirflowException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError, SupervisedElsewhereError
from airflow_provider_coordination.coordination.jobs import Job, JobState
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.coordination.source_statistics import known_sources
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.workers import new_owner
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.job_resources import end_local_processes, remove_settings
from airflow_provider_coordination.hooks.supervision import checks_against_source, supervisor_of
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.operators.claims import claim_for_job, followed
from airflow_provider_coordination.operators.group_jobs import JobGroup
from airflow_provider_coordination.operators.job_follower import JobFollower, delete_log, show_log
from airflow_provider_coordination.operators.lineage import report_ended
from airflow_provider_coordination.operators.packaging import packaged_application
from airflow_provider_coordination.operators.spark_hook import end_in_cluster
from airflow_provider_coordination.operators.spark_submit import APPLICATION, CoordinatedSparkSubmitOperator
from airflow_provider_coordination.spark.outcome import Outcome
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.stores import open_store
from airflow_provider_coordination.supervisor.operations import NOT_CHECKED, SupervisorVerbs
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant, Supervision
from airflow_provider_coordination.supervisor.turn import JobRequest, Launcher, Supervisor, TurnResult, task_of
from airflow_provider_coordination.triggers.deferral import ERROR
from airflow_provider_coordination.triggers.supervisor import MISSING, SupervisorTrigger, mark_of


class SuperviseOperator(BaseOperator):
    """Supervises a source by its latest submitted spec; it is the task of a DAG on `@continuous`.

    The task takes a turn, which starts and ends jobs as needed, then defers. The triggerer polls the source and wakes
    the task for the next turn. The jobs belong to the source, not to the task: a run that ends, is cleared or is marked
    by a user does not affect them, and the next run continues with them. The task ends once `task_duration` of the spec
    has passed since its run began, so that each run has a readable log. While the source is suspended, or the
    supervisor is terminated, the task stays deferred.

    The task submits a spec file whenever its content differs from the last version that came from a file. So a spec
    that was submitted otherwise stays in effect until a user edits the file. If the file is missing or invalid, or does
    not fit the source, the stored spec stays in effect, and the supervisor's status shows the error.

    Returns a small summary: `source`, `state`, `spec_version` and the owners of the `jobs`.

    :param source: the source's name, if its spec is submitted by command line or HTTP.
    :param spec_file: the path of the spec file, instead of `source`.
    :param connect: whether to query the source before a spec from the file is submitted.
    :param coordination_conn_id: the connection of type `coordination`; the one in the file's spec overrides it.
    """

    ui_color = "#f5e6cc"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str | None = None,
        spec_file: str | None = None,
        connect: bool = True,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        if (source is None) == (spec_file is None):
            raise ValueError("give either 'source', whose spec is submitted elsewhere, or 'spec_file'")
        super().__init__(**kwargs)
        self.source = source
        self.spec_file = spec_file
        self.connect = connect
        self.coordination_conn_id = coordination_conn_id
        self.source_worked_on = source or ""

    def execute(self, context: Context) -> dict[str, Any]:
        """Take a turn, then defer.

        :raises AirflowException: if the supervisor cannot work now; a retry continues.
        """
        return self._supervise(context, {})

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Take the next turn after a deferral.

        :param event: the payload of the trigger's event.
        :raises AirflowException: if the supervisor cannot work now; a retry continues.
        """
        if event is not None and event.get("status") == ERROR:
            raise AirflowException(event.get("message"))
        return self._supervise(context, event or {})

    def _supervise(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._take_turn(context, event)
        except (ConfigurationError, SourceError) as error:  # a user may fix it at any time, so a retry makes sense
            raise AirflowException(str(error)) from None

    def _take_turn(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        claimant = claimant_of(context)
        file = None if self.spec_file is None else SpecFile.read(self.spec_file)
        if file is not None and file.spec is not None:
            self.coordination_conn_id = file.spec.tuning.coordination_conn_id
        else:
            self.coordination_conn_id = event.get("coordination_conn_id", self.coordination_conn_id)
        connection = CoordinationHook(self.coordination_conn_id).settings
        source = self.source or event.get("source") or _source_of(file, connection, claimant.dag_id)
        self.source_worked_on = source
        coordinator = connection.coordinator(source, claimant.owner)
        with closing(coordinator.store):
            supervisor = supervisor_of(coordinator, claimant, connection.region)
            try:
                self._submit(file, coordinator, claimant, connection.region)
                turn = supervisor.turn(SparkLauncher(connection=connection, source=source, context=context))
            except SupervisedElsewhereError as error:
                if _is_other_dag(supervisor.store, claimant):
                    raise AirflowException(f"{error}{_way_out(file)}") from None
                self.log.info("%s", error)
                return {"source": source, "state": "supervised by a later run"}
            report_ended_jobs(JobFollower(connection=connection, source=source, task=task_of(source)), context)
            until = _end_of_run(claimant, supervisor, coordinator.view)
        if until is not None and until <= coordinator.clock.now():
            return _summary(source, turn)
        self.defer(
            trigger=SupervisorTrigger(
                claimant=claimant.to_mapping(),
                source=source,
                coordination_conn_id=self.coordination_conn_id,
                until=None if until is None else format_instant(until),
                spec_file=self.spec_file,
                file_mark=event.get("file_mark", MISSING if file is None else file.mark),
            ),
            method_name=self.execute_complete.__name__,
        )
        raise AssertionError  # deferring raises

    def _submit(
        self, file: SpecFile | None, coordinator: SourceCoordinator, claimant: Claimant, region: str | None
    ) -> None:
        """Submit the file's spec if it is new; record an error of the file in the status.

        The source is leased first, so that only the DAG that supervises it submits.

        :raises SupervisedElsewhereError: if another DAG, or a later run of this DAG, supervises the source.
        :raises ConfigurationError: if the spec cannot be carried out, and no spec is stored.
        :raises SourceError: if the source does not respond, and no spec is stored.
        """
        if file is None:
            return
        store = SupervisionStore(coordinator.view)
        stored = store.acquire(claimant)
        error: ConfigurationError | SourceError | None = file.error
        if error is None and stored.supervision.file_digest != file.digest:
            verbs = SupervisorVerbs(coordinator, by=claimant.dag_id, reason=f"file {Path(file.path).name}")
            check = checks_against_source(region, connect=self.connect)
            try:
                done = verbs.submit(file.mapping, file_digest=file.digest, check=check, claimant=claimant)
            except (ConfigurationError, SourceError) as refused:
                error = refused.__class__(f"file {file.path!r}: {refused}")
            else:
                if done.check_failure:
                    self.log.warning("source=%s: %s: %s", store.source, NOT_CHECKED, done.check_failure)
                for warning in done.warnings:
                    self.log.warning("source=%s: %s", store.source, warning)
                number, path = done.version.version, file.path
                self.log.info("source=%s: version %d of the spec is in effect, from %s", store.source, number, path)
        if error is None:
            return
        if not stored.supervision.spec_version:
            store.release(claimant)  # another DAG may have a spec that can be carried out
            raise error
        self.log.error("source=%s: the file is refused, and the stored spec stays in effect: %s", store.source, error)
        store.record_error(claimant, error)


@dataclass(frozen=True, kw_only=True)
class SpecFile:
    """A spec file as it was read.

    :param path: the path of the file.
    :param mark: changes whenever the file does.
    :param mapping: the spec as written; empty if the file cannot be read.
    :param digest: the digest of the content; empty if the file cannot be read.
    :param spec: the parsed and checked spec; None if it is invalid.
    :param error: the error in the file; None if it is valid.
    """

    path: str
    mark: str
    mapping: Mapping[str, Any]
    digest: str = ""
    spec: IngestionSpec | None = None
    error: ConfigurationError | None = None

    @classmethod
    def read(cls, path: str) -> SpecFile:
        """Read a spec file; an invalid file does not raise but sets `error`."""
        mark = mark_of(path)  # read first: an edit between the two reads then counts as one more change
        mapping: Mapping[str, Any] = {}
        try:
            mapping, digest = read_spec_file(path)
        except ConfigurationError as error:
            return cls(path=path, mark=mark, mapping=mapping, error=error)
        try:
            return cls(path=path, mark=mark, mapping=mapping, digest=digest, spec=IngestionSpec.read(mapping))
        except ConfigurationError as error:
            file_error = ConfigurationError(f"file {path!r}: {error}")
            return cls(path=path, mark=mark, mapping=mapping, error=file_error)


def claimant_of(context: Context) -> Claimant:
    """Return the claimant of the supervision: this try of the task, the same in all of its turns."""
    ti: Any = context["ti"]
    run: Any = context["dag_run"]
    return Claimant(
        owner=":".join(("airflow", ti.dag_id, ti.run_id, ti.task_id, "-1", str(ti.try_number), "supervisor")),
        dag_id=ti.dag_id,
        run_at=run.start_date or run.run_after,
        try_number=ti.try_number,
    )


def _source_of(file: SpecFile | None, connection: ConnectionSettings, dag_id: str) -> str:
    """Return the source that a file's spec names; if it names none, the source that this DAG supervised last.

    :raises ConfigurationError: if the file is invalid, and the DAG never supervised a source.
    """
    assert file is not None
    if file.spec is not None:
        return file.spec.source
    with closing(open_store(connection.store)) as store:
        for source in known_sources(store, connection.prefix):
            supervision = SupervisionStore(connection.view(source, store=store)).get()
            if supervision is not None and supervision.supervision.dag_id == dag_id:
                return source
    assert file.error is not None
    raise file.error


def _is_other_dag(store: SupervisionStore, claimant: Claimant) -> bool:
    stored = store.get()
    return stored is not None and stored.claimant is not None and stored.claimant.dag_id != claimant.dag_id


def _way_out(file: SpecFile | None) -> str:
    """Return what is left to a DAG that may not submit its file."""
    if file is None:
        return ""
    return f"; file {file.path!r} is not submitted: to replace the current spec, use 'supervisor submit'"


def _end_of_run(claimant: Claimant, supervisor: Supervisor, view: SourceView) -> datetime | None:
    """Return when the time of the run is over; None, which means no end, without a spec or while suspended."""
    current = supervisor.store.current()
    if current is None or current.spec is None or view.suspension() is not None:
        return None
    with suppress(ConfigurationError):  # a newer version of this package may have written the spec
        return claimant.run_at + IngestionSpec.read(current.spec).supervise.task_duration
    return None


def _summary(source: str, turn: TurnResult) -> dict[str, Any]:
    memory: Supervision = turn.supervision
    return {
        "source": source,
        "state": memory.health.state.value,
        "spec_version": memory.spec_version,
        "jobs": [job.owner for job in memory.jobs],
    }


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SparkLauncher(Launcher):
    """Submits jobs to Spark in the deploy mode of the connection, without waiting for any; see `Launcher`.

    :param connection: the settings of the store's connection.
    :param source: the source's name.
    :param context: the context of the task that takes turns; it submits the jobs.
    """

    connection: ConnectionSettings
    source: str
    context: Context

    @override
    def new_owner(self) -> str:
        ti: Any = self.context["ti"]
        return new_owner(ti.dag_id, ti.run_id, ti.task_id, -1, ti.try_number)

    @override
    def start(self, request: JobRequest) -> None:
        job = job_operator(request)
        settings = followed(
            job.job_settings(self.connection, self.context, request.job.owner), request.spec.tuning.start_timeout
        )
        settings = replace(settings, replaces=request.job.replaces)
        claim_for_job(self.connection, self.context, settings, job.ingestion.reads, is_supervised=True)
        follower = JobFollower(connection=self.connection, source=self.source, task=request.task)
        if (group := self._group_of(request.spec)) is None:
            job.submit(follower, settings)
        else:
            group.start(job, follower, settings, self.context)

    @override
    def end(self, job: Job, spec: IngestionSpec | None, reason: str) -> None:
        if spec is not None and (group := self._group_of(spec)) is not None:
            group.withdraw(job.owner)  # once it runs, its own thread notices that it was ended
            return
        if end_local_processes(job.log):
            log.info("job killed: source=%s owner=%s: %s", self.source, job.owner, reason)
        if job.cluster_id is not None and spec is not None:
            self._end_in_cluster(job.owner, job.cluster_id, spec, reason)
        remove_settings(job)

    def _group_of(self, spec: IngestionSpec) -> JobGroup | None:
        name = spec.tuning.group
        return JobGroup(name=name, connection=self.connection) if name else None

    def _end_in_cluster(self, owner: str, cluster_id: str, spec: IngestionSpec, reason: str) -> None:
        """Request the cluster manager to end a job. If it does not, the job ends once it finds its leases taken."""
        operator = CoordinatedSparkSubmitOperator(**spec.job_arguments(), task_id="ingest", application="")
        try:
            ended = end_in_cluster(operator._get_hook(), cluster_id, operator.env_vars)
        except (ConfigurationError, OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "output", None) or ""
            log.warning(
                "the cluster did not end job %s: source=%s owner=%s: %s %s",
                cluster_id, self.source, owner, error, Redaction(dict(os.environ)).text(str(output)[-1000:]),
            )  # fmt: skip
        else:
            log.info(
                "job killed in the cluster: source=%s owner=%s job=%s exit code %d: %s",
                self.source, owner, cluster_id, ended.returncode, reason,
            )  # fmt: skip


def job_operator(request: JobRequest) -> CoordinatedSparkSubmitOperator:
    """Return the operator that submits a job; it is not a task of any DAG."""
    arguments = request.spec.job_arguments()
    ingestion = replace(
        arguments["ingestion"],
        rejection=request.spec.supervise.rejection(request.job.planned_at),
        rounds=replace(arguments["ingestion"].rounds, max_duration=request.max_duration),
    )
    return CoordinatedSparkSubmitOperator(
        **arguments
        | {
            "task_id": "ingest",
            "application": packaged_application(APPLICATION),
            "ingestion": ingestion,
            "workers": request.workers,
            "deferrable": True,
        }
    )


def report_ended_jobs(follower: JobFollower, context: Context) -> None:
    """Log the jobs that ended since the last call; for a failed job also the end of its output. Report their lineage.

    :param follower: the follower of the supervisor's jobs.
    :param context: the context of the supervisor's task.
    """
    redaction = Redaction(follower.connection.store, dict(os.environ))
    with follower.jobs() as (_, jobs):
        ended = [job for job in jobs.of_task(follower.task) if job.state is JobState.ENDED and not job.is_reported]
    for job in ended:
        outcome = Outcome.from_mapping(job.outcome or {})
        if outcome.exit_code == 0:
            log.info("job ended: source=%s owner=%s %s", follower.source, job.owner, dict(outcome.summary))
            delete_log(job.log)
        else:
            log.error(
                "job failed: source=%s owner=%s exit code %s: %s\n%s",
                follower.source, job.owner, outcome.exit_code, outcome.error or "it left no error", outcome.tail,
            )  # fmt: skip
            show_log(job.log, redaction)
        follower.note_reported(job.owner)
    report_ended(context, ended, redaction)
