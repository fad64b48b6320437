"""A Spark job that ingests a source under leases, as a task."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context, conf
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferralError, TaskDeferralTimeout

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.lease_settings import LeaseSettings
from airflow_provider_coordination.coordination.partition import format_instant, parse_instant
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.kubernetes import (
    DEFAULT_CONN_ID,
    FILE,
    FOLDER,
    MISSING,
    DriverSecrets,
    secret_name,
)
from airflow_provider_coordination.hooks.settings_locations import SECRET, SettingsPlace
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured
from airflow_provider_coordination.links.jobs import JobLogLink, JobPlaces, SparkUiLink, place_of, running_job_ui
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.claims import claim_for_job
from airflow_provider_coordination.operators.ingest_settings import START_TIMEOUT, ingest_settings
from airflow_provider_coordination.operators.job_follower import (
    JobFollower,
    do_not_wait,
    is_of_this_try,
    job_folder,
    left_of,
    show_log,
    summary_of,
    task_of,
    will_be_retried,
)
from airflow_provider_coordination.operators.job_output import JobOutput
from airflow_provider_coordination.operators.lineage import lineage_of
from airflow_provider_coordination.operators.moved_arguments import check_arguments
from airflow_provider_coordination.operators.outlets import no_stream, report_to_outlets
from airflow_provider_coordination.operators.packaging import (
    end_processes,
    job_processes,
    local_environment,
    packaged_application,
    write_package_archive,
)
from airflow_provider_coordination.operators.reads.reads import Reads, own_copy
from airflow_provider_coordination.operators.spark_hook import (
    NOT_FOLLOWED,
    before_submitting,
    exit_code_of,
    submission_target,
    watch_output,
    when_submitted,
)
from airflow_provider_coordination.operators.start_up import conf_with_archive, driver_options
from airflow_provider_coordination.operators.template_values import seconds_value, text_value
from airflow_provider_coordination.operators.writes.writes import Writes
from airflow_provider_coordination.spark.job_settings import (
    AcknowledgmentSettings,
    BadRecordSettings,
    RejectionSettings,
    RoundSettings,
)
from airflow_provider_coordination.spark.outcome import Outcome
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.summary import Summary
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.triggers.events import ERROR
from airflow_provider_coordination.triggers.jobs import JobTrigger
from airflow_provider_coordination.versions import find_installation, require_versions

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

APPLICATION = "ingest.py"
NOTHING_LEFT = "nothing is left to do"
OBJECTS = ("reads", "writes", "on_bad_records", "rejection", "acknowledgments", "leases", "rounds")
"""The arguments that are objects with templates of their own."""


@dataclass(kw_only=True)
class _Job:
    """The job of one try: what it is told, what it says, and what has to be undone if it fails."""

    settings: IngestSettings
    connection: ConnectionSettings
    settings_file: Path
    package_archive: Path
    output: JobOutput
    follower: JobFollower | None = None
    is_waited_for: bool = True
    secrets: DriverSecrets | None = None
    log: str | None = None
    abandoned: bool = False

    @property
    def place(self) -> SettingsPlace | None:
        """Where the settings lie, other than in a file."""
        if self.secrets is None:
            return None
        return SettingsPlace(kind=SECRET, conn_id=self.secrets.conn_id, location=self.secrets.namespace)

    def announce(self, job_log: str | None = None) -> None:
        """Write the job down that is about to be submitted, then put its settings where its driver finds them."""
        assert self.follower is not None
        self.follower.submit(self.settings, job_log, self.place)
        if self.secrets is not None:
            self.secrets.make(self.settings)


class CoordinatedSparkSubmitOperator(SparkSubmitOperator):
    """Runs one Spark job that leases partitions of a source and lands them, as Parquet, in a dataset.

    Any number of these tasks may work on one source at once, in one run or in several: leases share the
    partitions out.

    The job is told everything in a file that only its owner can read and that is removed afterwards, or in a
    Secret of Kubernetes; no secret is on the command line, in the Spark configuration, in the environment set here or
    in the log. The
    package itself travels as an archive in `py_files`. Keys of the AWS connection travel in the file if it
    holds any; otherwise the driver and the executors each ask the AWS SDK's default chain where they run.

    While the source is suspended the task is skipped, and a job that runs delivers what it has read, gives its leases
    back and ends: its task succeeds.

    When the job fails, is killed or times out, its processes are ended and its leases given back at once, so
    that others go on without waiting for a timeout. Wrong settings fail the task without a retry; lost leases
    and everything else may be retried: each try is a new owner, and submits a new job.

    With deploy mode `cluster` the settings file travels in `files` on YARN, and is mounted from a Secret that the task
    makes and deletes on Kubernetes. They serve one driver: one that the cluster manager begins again is refused, and
    the task's next try submits another job. The job leaves its summary and its error in the store. Spark does not run
    Python drivers in cluster mode on a standalone master.

    Returns the job's summary, with its `owner`.

    Parameters of `SparkSubmitOperator` that are not named here work as they do there, except `durable`, which
    has no use: a new job beside a forgotten one is harmless under leases.

    :param reads: what is read: one of the classes of `operators.reads`, such as `KinesisStreams`. (templated)
    :param writes: where to: one of the classes of `operators.writes`, or a list of them. (templated)
    :param source: the source's name; by default what `reads` calls it. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param landing_path: where raw batches wait for delivery; `_landing` below the path of the first
        dataset by default. (templated)
    :param transform: `module:function`, from DataFrame to DataFrame; None publishes the raw records.
        (templated)
    :param per_batch: whether the transform gets the records of one batch at a time, though it keeps `_batch_id`;
        otherwise one that keeps it gets those of all batches of a round.
    :param schema: what the payload holds, as DDL such as `id STRING NOT NULL, amount DOUBLE`: it is parsed as JSON
        into columns before the transform; None leaves it alone. (templated)
    :param on_bad_records: what becomes of records that cannot be parsed or transformed: without `dead_letter_path` they
        fail their batch. (templated)
    :param rejection: which records are late or early by a column of `schema`, and left out; none by default.
        (templated)
    :param acknowledgments: who says that a batch is delivered, and how long that may take; by default the job, once its
        sinks have the batch. (templated)
    :param leases: how many leases the job may have, and how it comes by them. (templated)
    :param rounds: how the job makes its rounds, and after which one it ends; by default once everything is delivered
        that was there at the start. (templated)
    :param workers: how many jobs are expected to share the source. (templated)
    :param interval: deliver exactly what there is of an interval, under leases of its own: `"data_interval"` for that
        of the run, or its ends; see `interval_value`. None for no bounds. (templated)
    :param deduplicate_against: the source of live ingestion, by its name: what it delivers, of the interval, is left to
        it, so that no record is delivered twice. None asks for no such thing. (templated)
    :param deferrable: submit the job without waiting for it, and follow it in the triggerer; see
        `operators.deferring`.
    :param start_timeout: how long a job that is not waited for may take to begin, for example in a cluster's queue;
        timedelta or seconds; None for an hour. (templated)
    :param spark_archive: the archive of Spark's classes that `airflow-coordination spark-archive` made on the machine
        of the driver, and of the executors, under this path; jobs begin sooner with it. (templated)
    :param spark_ui_url: where the Spark UI of an application is that has ended, such as
        `https://history.example.com/history/{application_id}/`; None if there is no history server. (templated)
    :param job_log_url: where the driver's log of an application is, with `{application_id}`. (templated)
    :param application: the program; by default the one that comes with this package. (templated)
    :param kubernetes_conn_id: the connection of type `kubernetes` by which Secrets are made and deleted, where the
        driver runs in Kubernetes. (templated)
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "reads",
        "writes",
        "source",
        "coordination_conn_id",
        "landing_path",
        "transform",
        "schema",
        "on_bad_records",
        "rejection",
        "acknowledgments",
        "leases",
        "rounds",
        "workers",
        "interval",
        "deduplicate_against",
        "start_timeout",
        "spark_archive",
        "spark_ui_url",
        "job_log_url",
        "kubernetes_conn_id",
    )
    operator_extra_links = (SparkUiLink(), JobLogLink(), LeasesLink())

    def __init__(
        self,
        *,
        reads: Reads | None = None,
        writes: Writes | Sequence[Writes] | None = None,
        source: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        landing_path: str | None = None,
        transform: str | None = None,
        per_batch: bool = False,
        schema: str | None = None,
        on_bad_records: BadRecordSettings | None = None,
        rejection: RejectionSettings | None = None,
        acknowledgments: AcknowledgmentSettings | None = None,
        leases: LeaseSettings | None = None,
        rounds: RoundSettings | None = None,
        workers: int | str = 1,
        interval: str | Sequence[Any] | None = None,
        deduplicate_against: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        start_timeout: timedelta | float | str | None = None,
        spark_archive: str | None = None,
        spark_ui_url: str | None = None,
        job_log_url: str | None = None,
        application: str = "",
        kubernetes_conn_id: str = DEFAULT_CONN_ID,
        name: str = "ingest",
        **kwargs: Any,
    ) -> None:
        if kwargs.get("durable") or kwargs.get("reconnect_on_retry"):
            raise ValueError("durable=True is not supported: each try is a new owner; leases make a new job harmless")
        check_arguments(type(self).__name__, kwargs, reads=reads, writes=writes)
        assert reads is not None and writes is not None
        if deferrable:
            kwargs |= NOT_FOLLOWED
        super().__init__(application=application, name=name, **kwargs)
        self.durable = False
        self.reads = own_copy(reads)
        self.writes = own_copy(writes)
        self.source = source
        self.coordination_conn_id = coordination_conn_id
        self.landing_path = landing_path
        self.transform = transform
        self.per_batch = per_batch
        self.schema = schema
        self.on_bad_records = own_copy(on_bad_records or BadRecordSettings())
        self.rejection = own_copy(rejection or RejectionSettings())
        self.acknowledgments = own_copy(acknowledgments or AcknowledgmentSettings())
        self.leases = own_copy(leases or LeaseSettings())
        self.rounds = own_copy(rounds or RoundSettings())
        self.workers = workers
        self.interval = interval
        self.deduplicate_against = deduplicate_against
        self.deferrable = deferrable
        self.start_timeout = start_timeout
        self.spark_archive = spark_archive
        self.spark_ui_url = spark_ui_url
        self.job_log_url = job_log_url
        self.kubernetes_conn_id = kubernetes_conn_id
        self.job_places = JobPlaces()
        self.source_worked_on = ""
        self._job: _Job | None = None
        self._lineage: tuple[IngestSettings, dict[str, Any]] | None = None
        self._follower: JobFollower | None = None

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Return the operator with these arguments, to be expanded; see Airflow's `BaseOperator.partial`.

        :raises TypeError: if an argument has moved, naming where it is said now.
        """
        check_arguments(cls.__name__, kwargs)
        return super().partial(**kwargs)

    def prepare_for_execution(self) -> Self:
        """Return the task that is run, with templates of its own to render."""
        prepared = super().prepare_for_execution()
        for name in OBJECTS:
            setattr(prepared, name, own_copy(getattr(self, name)))
        return prepared

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job, wait for its end and return its summary; with `deferrable`, wait in the triggerer.

        :raises AirflowFailException: if only a person can put things right.
        :raises AirflowSkipException: if the source is suspended.
        :raises AirflowException: if the job failed or lost its leases; a retry continues where it stopped.
        """
        with failing_when_misconfigured():
            connection = CoordinationHook(self.coordination_conn_id).settings
            settings = ingest_settings(self, connection, context)
            self.source_worked_on = settings.source
            self.application = self.application or packaged_application(APPLICATION)
            # A store that does not answer, or another DAG's claim, is better known before Spark is started.
            prospect = claim_for_job(connection, context, settings, self.reads)
        if not prospect.is_anything_left:
            self.log.info("no job is started, nothing is left to do: source=%s", settings.source)
            nothing = Summary(stopped_because=NOTHING_LEFT).to_mapping()
            return self._reported(context, settings.source, {"owner": settings.owner, **nothing}, settings)
        if self.deferrable:
            result = self._follow(connection, settings, context, prospect.suspension)
            return self._reported(context, settings.source, result, settings)
        if prospect.suspension is not None:
            raise nothing_begins(settings.source, prospect.suspension)
        self.log.info("job of source=%s reads=%s owner=%s", settings.source, settings.reads.kind, settings.owner)
        result = self._wait_for(connection, settings, context)
        return self._reported(context, settings.source, result, settings)

    def _wait_for(self, connection: ConnectionSettings, settings: IngestSettings, context: Context) -> dict[str, Any]:
        """Submit the job, and return its summary once it has ended."""
        follower = None
        with failing_when_misconfigured():
            target = submission_target(self._plain_hook())
            target.check()
            target.waiting(self.conf)
        if target.is_in_cluster:  # its driver may outlive this process, and be begun again
            settings = replace(settings, is_followed=True)
            follower = JobFollower(connection=connection, source=settings.source, task=task_of(context))
            follower.stop("another try of its task began")
        self._follower = follower
        with TemporaryDirectory(prefix="coordination-") as name:
            folder = Path(name)  # made for its owner alone
            self._hook = None
            self._job = job = _Job(
                settings=settings,
                connection=connection,
                settings_file=folder / f"{folder.name}.json",
                package_archive=write_package_archive(folder),
                output=JobOutput(self._redaction(settings)),
                follower=follower,
            )
            settings.write(job.settings_file)
            try:
                with failing_when_misconfigured():
                    super().execute(context)
            except BaseException as error:
                self._abandon_job()
                if follower is not None:
                    said = job.output.redaction.text(f"spark-submit failed: {error}")
                    outcome = follower.conclude(settings.owner, Outcome(exit_code=None, error=said))
                    if outcome.exit_code is not None and isinstance(error, Exception):
                        return summary_of(settings.owner, outcome)
                explained = job.output.explained(exit_code_of(self._hook))
                if explained is None or not isinstance(error, Exception):
                    raise
                raise explained from None
            finally:
                self._note_places(job.output.application_id)
        if follower is None:
            return {"owner": settings.owner, **job.output.summary}
        outcome = follower.conclude(settings.owner, Outcome(exit_code=0, summary=job.output.summary))
        return summary_of(settings.owner, outcome)

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Go on after a deferral: return the summary of the job, or wait again if it still runs.

        :param event: the payload of the trigger's event.
        :raises AirflowFailException: if only a person can put things right.
        :raises AirflowException: if the job failed, lost its leases or vanished; a retry continues where it stopped.
        """
        if event is None or "owner" not in event or event.get("status") == ERROR:
            raise AirflowFailException((event or {}).get("message") or f"the trigger sent no event: {event!r}")
        with failing_when_misconfigured():
            connection = CoordinationHook(self.coordination_conn_id).settings
        self.source_worked_on = event["source"]
        follower = JobFollower(connection=connection, source=event["source"], task=task_of(context))
        if not is_of_this_try(event["owner"], context) and follower.was_in_vain(event["owner"]):
            # Perhaps it was found before the news came that its own try was cleared.
            self.log.info("the job of an earlier try did not end well, another one follows: owner=%s", event["owner"])
            return self.execute(context)
        deadline = None if event["deadline"] is None else parse_instant(event["deadline"])
        settings = None
        with suppress(Exception):  # they serve redaction and lineage alone: the job has its own
            settings = ingest_settings(self, connection, context)
        result = self._go_on(follower, event["owner"], event["log"], deadline, settings)
        return self._reported(context, event["source"], result, settings)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral; if nobody will come back for the job, stop it.

        :raises TaskDeferralError: if the deferral ran out of time, or its trigger failed.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._stop_followed(context, "its task ran out of time")
            raise
        except TaskDeferralError:
            if not will_be_retried(context):  # a retry finds the job, and goes on with it
                self._stop_followed(context, "its task failed")
            raise

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return what OpenLineage is told of the job; Airflow's provider for it asks once the task has succeeded."""
        return None if self._lineage is None else lineage_of(*self._lineage)

    def on_kill(self) -> None:
        """End the job and give its leases back. Runs in a signal handler, so it asks nothing of Airflow."""
        if self._follower is not None:
            try:
                self._follower.stop("its task was ended or cleared in Airflow", removes_settings=False)
            except Exception as error:
                self.log.warning("the job may not have been told to stop: %s", error)
        self._abandon_job()

    def _reported(
        self, context: Context, source: str, result: dict[str, Any], settings: IngestSettings | None
    ) -> dict[str, Any]:
        """Return a result, once the outlets know of it; keep what OpenLineage will ask for."""
        kind = None if settings is None else settings.reads.found()
        report_to_outlets(context, self.outlets, source, result, no_stream if kind is None else kind.stream_of)
        self._lineage = None if settings is None else (settings, result)
        return result

    # Without waiting

    def _follow(
        self,
        connection: ConnectionSettings,
        settings: IngestSettings,
        context: Context,
        suspension: Suspension | None = None,
    ) -> dict[str, Any]:
        """Submit the job, or find that of an earlier try, and defer until it is over.

        :param suspension: how the source is suspended: the job of an earlier try is about to end, no other begins.
        """
        now = datetime.now(UTC)
        deadline = None if self.execution_timeout is None else now + self.execution_timeout
        with failing_when_misconfigured():
            start_timeout = seconds_value("start_timeout", self.start_timeout)
        start_by = now + (START_TIMEOUT if start_timeout is None else timedelta(seconds=start_timeout))
        settings = replace(settings, is_followed=True, expires_at=start_by)
        follower = JobFollower(connection=connection, source=settings.source, task=task_of(context))
        self._follower = follower
        earlier = follower.earlier(settings)
        if earlier is not None:
            self.log.info("the job of an earlier try goes on: source=%s owner=%s", settings.source, earlier.owner)
            return self._go_on(follower, earlier.owner, earlier.log, deadline, settings)
        if suspension is not None:
            raise nothing_begins(settings.source, suspension)
        job_log = self.submit(follower, settings, partial(super().execute, context))
        return self._go_on(follower, settings.owner, job_log, deadline, settings)

    def submit(
        self, follower: JobFollower, settings: IngestSettings, by: Callable[[], object] | None = None
    ) -> str | None:
        """Submit a job without waiting for it, in whatever deploy mode the connection says.

        :param follower: who follows the job.
        :param settings: the job's; `is_followed`, and `expires_at` when it is given up if it has not begun.
        :param by: submits by the provider's operator, in a task of this operator; None to submit by its hook.
        :returns: where the job's output goes, on this machine; None if it goes to a cluster.
        :raises Exception: if it could not be submitted; the job is written down as ended, and nothing is left of it.
        """
        self.log.info("job is submitted without waiting: source=%s owner=%s", settings.source, settings.owner)
        folder = job_folder()
        self._follower = follower
        self._hook = None
        self._job = job = _Job(
            settings=settings,
            connection=follower.connection,
            settings_file=folder / f"{folder.name}.json",
            package_archive=write_package_archive(folder),
            output=JobOutput(self._redaction(settings)),
            follower=follower,
            is_waited_for=False,
        )
        try:
            settings.write(job.settings_file)
            with failing_when_misconfigured():
                if by is None:
                    self._hook = self._get_hook()
                    self._hook.submit(self.application)
                else:
                    by()
        except BaseException as error:
            self._abandon_job()
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(CoordinationError):
                follower.end(settings.owner, job.output.redaction.text(f"it was not submitted: {error}"))
            raise
        if job.log is None:  # it has travelled to the cluster
            shutil.rmtree(folder, ignore_errors=True)
        self._job = None
        return job.log

    def _go_on(
        self,
        follower: JobFollower,
        owner: str,
        job_log: str | None,
        deadline: datetime | None,
        settings: IngestSettings | None,
    ) -> dict[str, Any]:
        """Return the summary of a job that is over; defer if it is not.

        :param settings: the job's, for the secrets in them; None if they are not known any more.
        """
        self._follower = follower
        outcome = follower.judged(owner)
        if outcome is None:
            self.job_places = JobPlaces(spark_ui=running_job_ui(self.coordination_conn_id, follower.source, owner))
            self.defer(
                trigger=JobTrigger(
                    source=follower.source,
                    owner=owner,
                    coordination_conn_id=self.coordination_conn_id,
                    log=job_log,
                    deadline=None if deadline is None else format_instant(deadline),
                ),
                method_name=self.execute_complete.__name__,
                timeout=left_of(deadline),
            )
        self._follower = None
        show_log(job_log, self._redaction(settings or follower.connection.store))
        job = follower.note_reported(owner)
        self._note_places(None if job is None else job.application_id)
        return summary_of(owner, outcome)

    def _redaction(self, holder: IngestSettings | StoreSettings) -> Redaction:
        """Return what hides the secrets that a job is given, by its settings or beside them."""
        return Redaction(holder, self.conf, self.env_vars, dict(os.environ))

    def _note_places(self, application_id: str | None) -> None:
        """Note where the job can be looked at that has ended."""
        ui, job_log = text_value(self.spark_ui_url), text_value(self.job_log_url)
        self.job_places = JobPlaces(spark_ui=place_of(ui, application_id), log=place_of(job_log, application_id))

    def _stop_followed(self, context: Context, reason: str) -> None:
        try:
            connection = CoordinationHook(self.coordination_conn_id).settings
            source = ingest_settings(self, connection, context).source
            JobFollower(connection=connection, source=source, task=task_of(context)).stop(reason)
        except Exception as error:  # the task fails by what happened to it, not by this
            self.log.warning("the job may not have been told to stop: %s", error)

    def _get_hook(self) -> SparkSubmitHook:
        """Return the provider's hook, made with what this try's job needs beside the task's own arguments."""
        hook = self._plain_hook()
        job = self._job
        if job is None:
            return hook
        target, archive = submission_target(hook), text_value(self.spark_archive)
        prepared = copy(self)  # the task's own arguments stay as they were rendered
        with failing_when_misconfigured():
            target.check()
            prepared.conf = target.once(conf_with_archive(self.conf, archive, target))
        prepared.py_files = _listed(self.py_files, job.package_archive)
        reference = str(job.settings_file)
        if target.is_in_cluster and target.is_kubernetes:
            with failing_when_misconfigured():
                job.secrets = DriverSecrets(text_value(self.kubernetes_conn_id) or DEFAULT_CONN_ID, target.namespace)
            prepared.conf[f"spark.kubernetes.driver.secrets.{secret_name(job.settings.owner)}"] = FOLDER
            reference = f"{FOLDER}/{FILE}"
            job.settings_file.unlink()
        elif target.is_in_cluster:
            prepared.files = _listed(self.files, job.settings_file)
            reference = job.settings_file.name
        elif target.is_here:
            given = self.env_vars or {}
            found = local_environment({**os.environ, **given}, has_executors=not target.is_local)
            prepared.env_vars = {**found, **given}
            environment = {**os.environ, **prepared.env_vars}
            with failing_when_misconfigured():
                require_versions(find_installation(environment))
                prepared.env_vars |= driver_options(environment, archive)
        prepared.application_args = [reference, job.settings.owner]
        if not job.is_waited_for:
            prepared.conf = target.without_waiting(prepared.conf)
        hook = SparkSubmitOperator._get_hook(prepared)
        if not job.is_waited_for:
            assert job.follower is not None
            job.log = do_not_wait(
                hook,
                job.settings_file,
                {} if target.is_kubernetes else prepared.env_vars or {},
                submitting=job.announce,
                submitted=partial(job.follower.note_submitted, job.settings.owner),
            )
        elif job.follower is not None:
            before_submitting(hook, job.announce)
        if job.secrets is not None:
            when_submitted(hook, partial(self._bind_settings, job))
        watch_output(hook, job.output.watched)
        return hook

    def _plain_hook(self) -> SparkSubmitHook:
        """Return the provider's hook, made of the task's own arguments.

        :raises AirflowFailException: if it needs Kubernetes' provider, and that is not installed.
        """
        try:
            return super()._get_hook()
        except NameError as error:  # the Spark provider looks for the other one so
            if error.name == "kube_client":
                raise AirflowFailException(MISSING) from None
            raise

    def _bind_settings(self, job: _Job, pod: str) -> None:
        """Have the settings go with the driver's pod as well; without that, nobody is worse off."""
        assert job.secrets is not None and job.follower is not None
        if job.is_waited_for:
            job.follower.note_submitted(job.settings.owner, f"{job.secrets.namespace}:{pod}")
        try:
            job.secrets.belong_to(job.settings.owner, pod)
        except CoordinationError as error:
            self.log.info("the settings go with this task alone, and not with pod %s: %s", pod, error)

    def _abandon_job(self) -> None:
        """End the job's processes, then give its leases back; once, and whatever goes wrong on the way."""
        job = self._job
        if job is None or job.abandoned:
            return
        job.abandoned = True
        try:
            processes = job_processes(str(job.settings_file))
            try:
                if self._hook is not None:
                    super().on_kill()
            finally:
                end_processes(processes)
        except Exception:
            self.log.exception("the job may not have been stopped: owner=%s", job.settings.owner)
        if job.secrets is not None:
            try:
                job.secrets.delete(job.settings.owner)
            except Exception as error:
                self.log.warning("the job's settings may be left: owner=%s: %s", job.settings.owner, error)
        self._give_leases_back(job)

    def _give_leases_back(self, job: _Job) -> None:
        owner = job.settings.owner
        try:
            # The coordinator acts for this task, not as the owner, whose leases are another process's.
            coordinator = job.connection.coordinator(job.settings.source, f"{owner}:task")
            with closing(coordinator.store):
                keys = coordinator.give_up_owner(owner)
        except Exception as error:
            self.log.warning(
                "leases could not be given back, they run out within %g seconds: source=%s owner=%s: %s",
                job.settings.ownership_timeout.total_seconds(), job.settings.source, owner, error,
            )  # fmt: skip
        else:
            self.log.info(
                "%d leases given back: source=%s owner=%s partitions=%s",
                len(keys), job.settings.source, owner, ", ".join(keys) or "none",
            )  # fmt: skip


def nothing_begins(source: str, suspension: Suspension) -> AirflowSkipException:
    """Return what skips the task of a suspended source."""
    return AirflowSkipException(
        f"source {source!r} is {suspension}; no job is started until `airflow-coordination resume` lets it go on"
    )


def _listed(given: str | None, added: Path) -> str:
    return f"{given},{added}" if given else str(added)
