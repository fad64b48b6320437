"""Task that runs a Spark job, which ingests a source under leases."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context

from airflow_provider_coordination.airflow_names import conf
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import parse_instant
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.job_resources import DEFAULT_CONN_ID
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured
from airflow_provider_coordination.links import (
    JobLogLink,
    JobUrls,
    LeasesLink,
    SparkUiLink,
    application_url,
    running_job_ui,
)
from airflow_provider_coordination.operators.claims import (
    check_job,
    claim_for_job,
    followed,
    ingest_settings,
    suspended_skip,
)
from airflow_provider_coordination.operators.group_jobs import JobGroup
from airflow_provider_coordination.operators.job_follower import (
    JobFollower,
    JobFollowingOperator,
    show_log,
    submitted_by_this_try,
    summary_of,
)
from airflow_provider_coordination.operators.job_results import no_stream, report_to_outlets
from airflow_provider_coordination.operators.job_submission import JobSubmission, job_folder
from airflow_provider_coordination.operators.lineage import JobDatasets, lineage_of, result_of
from airflow_provider_coordination.operators.packaging import packaged_application
from airflow_provider_coordination.operators.spark_hook import NOT_FOLLOWED, exit_code_of, plain_hook, submission_target
from airflow_provider_coordination.settings import text_value
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.outcome import Outcome, Summary
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import ApplicationSettings, IngestSettings
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.triggers.deferral import event_with

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

APPLICATION = "ingest.py"
NOTHING_LEFT = "nothing is left to do"
KILL_WAIT_SECONDS = 3.0
"""How long `on_kill` waits for the job's end, while the task's own work is interrupted."""
KILL_END_SECONDS = 60.0
"""How long a killed task waits for the rest of that before it ends."""


class CoordinatedSparkSubmitOperator(JobFollowingOperator, SparkSubmitOperator):
    """Runs one Spark job that leases partitions of a source, lands their records and delivers them to sinks.

    Any number of these tasks may work on one source at the same time, in one run or in several: leases divide the
    partitions among them.

    The job reads its settings from a private file that is removed afterwards, or from a Kubernetes Secret. No secret is
    on the command line, in the Spark configuration, in the environment that the task sets, or in the log. The package
    itself travels as an archive in `py_files`. The settings contain the keys of the AWS connection if it has any.
    Otherwise the driver and the executors each use the AWS default credential chain on their own machines.

    While the source is suspended the task is skipped. A running job then delivers what it has read, releases its leases
    and ends, and its task succeeds.

    If the job fails, is killed or times out, the task ends its processes and releases its leases at once, so that other
    jobs continue without waiting for a timeout. Wrong settings fail the task without a retry. A retry may follow lost
    leases and all other errors: each try is a new owner and submits a new job.

    With deploy mode `cluster` on YARN the submitted program contains the settings, and no executor receives it. On
    Kubernetes the task creates a Secret, mounts it in the driver's pod, and deletes it. Settings serve one driver: a
    driver that the cluster manager restarts is refused, and the task's next try submits another job. The job leaves its
    summary and its error in the store. Spark does not run Python drivers in cluster mode on a standalone master.

    Returns the job's summary, with its `owner`.

    Parameters of `SparkSubmitOperator` that are not listed here work as they do there, except `durable`, which is not
    supported: leases make a new job beside a forgotten one harmless.

    :param ingestion: what the job ingests: from where, to where, and how. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param workers: the number of jobs that are expected to share the source. (templated)
    :param interval: deliver exactly what an interval contains, under its own leases: `"data_interval"` for the
        interval of the run, or its two ends; see `interval_value`. None means no bounds. (templated)
    :param deduplicate_against: the name of the source of live ingestion. The task leaves out what that source delivers
        of the interval, so that no record is delivered twice. None leaves nothing out. (templated)
    :param deferrable: submit the job without waiting for it, and follow it in the triggerer; see
        `operators.job_follower`.
    :param group: the name of a group of sources whose jobs run in one Spark application; see the manual. The task then
        waits in the triggerer, as with `deferrable`. None gives each job its own application. (templated)
    :param start_timeout: how long a deferred job may take to begin, for example in a cluster's queue; timedelta or
        seconds; None for an hour. (templated)
    :param spark_archive: the archive of Spark's classes that `airflow-coordination spark-archive` made, at this path on
        the machines of the driver and the executors; jobs begin sooner with it. (templated)
    :param spark_ui_url: the URL of the Spark UI of an application that has ended, such as
        `https://history.example.com/history/{application_id}/`; None if there is no history server. (templated)
    :param job_log_url: the URL of the driver's log of an application, with `{application_id}`. (templated)
    :param application: the program; by default the one that this package includes. (templated)
    :param kubernetes_conn_id: the connection of type `kubernetes` that creates and deletes Secrets if the driver runs
        in Kubernetes. (templated)
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "ingestion",
        "coordination_conn_id",
        "workers",
        "interval",
        "deduplicate_against",
        "group",
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
        ingestion: Ingestion,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        workers: int | str = 1,
        interval: str | Sequence[Any] | None = None,
        deduplicate_against: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        group: str | None = None,
        start_timeout: timedelta | float | str | None = None,
        spark_archive: str | None = None,
        spark_ui_url: str | None = None,
        job_log_url: str | None = None,
        application: str = "",
        kubernetes_conn_id: str = DEFAULT_CONN_ID,
        name: str = "ingest",
        **kwargs: Any,
    ) -> None:
        for field in ("durable", "reconnect_on_retry"):
            if kwargs.pop(field, False):  # not every provider has it
                raise ValueError(
                    f"{field}=True is not supported, because each try starts a new job under a new owner; remove it"
                )
        check_job(ingestion, workers, group)
        if deferrable or group is not None:
            kwargs |= NOT_FOLLOWED
        super().__init__(application=application, name=name, **kwargs)
        self.durable = False
        self.ingestion = ingestion.own_copy()
        self.coordination_conn_id = coordination_conn_id
        self.workers = workers
        self.interval = interval
        self.deduplicate_against = deduplicate_against
        self.deferrable = deferrable
        self.group = group
        self.start_timeout = start_timeout
        self.spark_archive = spark_archive
        self.spark_ui_url = spark_ui_url
        self.job_log_url = job_log_url
        self.kubernetes_conn_id = kubernetes_conn_id
        self.job_urls = JobUrls()
        self.source_worked_on = ""
        self._job: JobSubmission | None = None
        self._lineage: tuple[IngestSettings, dict[str, Any]] | None = None
        self._follower: JobFollower | None = None
        self._killing: threading.Thread | None = None

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Return the operator with these arguments, to be expanded; see Airflow's `BaseOperator.partial`.

        :raises ConfigurationError: if an argument is wrong whatever its templates render.
        """
        if "ingestion" in kwargs:
            check_job(kwargs["ingestion"], kwargs.get("workers"), kwargs.get("group"))
        return super().partial(**kwargs)

    def prepare_for_execution(self) -> Self:
        """Return the copy of this task that runs; it renders its own templates."""
        prepared = super().prepare_for_execution()
        prepared.ingestion = self.ingestion.own_copy()
        return prepared

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job, wait for its end and return its summary; if deferrable, wait in the triggerer.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises AirflowSkipException: if the source is suspended.
        :raises AirflowException: if the job failed or lost its leases; a retry continues where it stopped.
        """
        with self._finishing_kill():
            with failing_when_misconfigured():
                connection = CoordinationHook(self.coordination_conn_id).settings
                settings = self.job_settings(connection, context)
                settings.rounds.check_group(text_value(self.group), "group")
                self.source_worked_on = settings.source
                self._lineage = settings, {"owner": settings.owner}
                self.application = self.application or packaged_application(APPLICATION)
                # Find out that the store is unavailable, or another DAG has the claim, before Spark is started.
                remaining = claim_for_job(connection, context, settings, self.ingestion.reads)
            if not remaining.has_work:
                self.log.info("no job is started, nothing is left to do: source=%s", settings.source)
                nothing = Summary(stopped_because=NOTHING_LEFT).to_mapping()
                return self._report(context, settings.source, {"owner": settings.owner, **nothing}, settings)
            if self.deferrable or text_value(self.group) is not None:
                result = self._follow(connection, settings, context, remaining.suspension)
                return self._report(context, settings.source, result, settings)
            if remaining.suspension is not None:
                raise suspended_skip(settings.source, remaining.suspension)
            self.log.info("job of source=%s reads=%s owner=%s", settings.source, settings.reads.kind, settings.owner)
            result = self._wait_for(connection, settings, context)
            return self._report(context, settings.source, result, settings)

    def _wait_for(self, connection: ConnectionSettings, settings: IngestSettings, context: Context) -> dict[str, Any]:
        """Submit the job, and return its summary once it has ended."""
        follower = None
        with failing_when_misconfigured():
            target = submission_target(self._plain_hook())
            target.check()
            target.check_waits(self.conf)
        if target.is_in_cluster:  # its driver may outlive this process, and be restarted
            settings = replace(settings, is_followed=True)
            follower = JobFollower.for_try(connection, settings.source, context)
            follower.stop("another try of its task began")
        self._follower = follower
        with TemporaryDirectory(prefix="coordination-") as name:
            job = self._new_job(settings, connection, Path(name), follower)
            settings.write(job.settings_file)
            try:
                with failing_when_misconfigured():
                    super().execute(context)
            except BaseException as error:
                self._abandon_job()
                self._lineage = settings, {"owner": settings.owner, **job.output.summary}
                if follower is not None:
                    message = job.output.redaction.text(f"spark-submit failed: {error}")
                    outcome = follower.final_outcome(settings.owner, Outcome(exit_code=None, error=message))
                    self._lineage = settings, {"owner": settings.owner, **outcome.summary}
                    if outcome.exit_code is not None and isinstance(error, Exception):
                        return summary_of(settings.owner, outcome)
                if not isinstance(error, Exception):
                    raise
                exception = job.output.exception_for(exit_code_of(self._hook)) or job.output.explained(error)
                if exception is error:
                    raise
                raise exception from None
            finally:
                self._set_job_urls(job.output.application_id)
        if follower is None:
            return {"owner": settings.owner, **job.output.summary}
        outcome = follower.final_outcome(settings.owner, Outcome(exit_code=0, summary=job.output.summary))
        return summary_of(settings.owner, outcome)

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Resume after a deferral: return the summary of the job, or defer again if it still runs.

        :param event: the payload of the trigger's event.
        :raises AirflowFailException: for an error that only a user can fix.
        :raises AirflowException: if the job failed, lost its leases or vanished; a retry continues where it stopped.
        """
        with self._finishing_kill():
            event = event_with(event, "owner")
            with failing_when_misconfigured():
                connection = CoordinationHook(self.coordination_conn_id).settings
            self.source_worked_on = event["source"]
            follower = JobFollower.for_try(connection, event["source"], context)
            outcome, is_own = follower.outcome_of(event["owner"]), submitted_by_this_try(event["owner"], context)
            if not is_own and self._is_replaced(follower, event["owner"], outcome):
                return self.execute(context)
            deadline = None if event["deadline"] is None else parse_instant(event["deadline"])
            settings = None
            with suppress(Exception):  # these settings only serve redaction and lineage: the job has its own
                settings = self.job_settings(connection, context)
            result = self._result_or_defer(follower, event["owner"], outcome, event["log"], deadline, settings)
            return self._report(context, event["source"], result, settings)

    def job_settings(
        self, connection: ConnectionSettings, context: Context, owner: str | None = None
    ) -> IngestSettings:
        """Return the settings of a job of this task, with its templates rendered.

        :param owner: the owner of the job's leases; a new one by default.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        return ingest_settings(
            self.ingestion,
            connection,
            context,
            interval=self.interval,
            deduplicate_against=self.deduplicate_against,
            workers=self.workers,
            owner=owner,
            timeout=self.execution_timeout,
        )

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return the OpenLineage metadata of the job; Airflow's OpenLineage provider calls this after success."""
        if self._lineage is None:
            return None
        settings, result = self._lineage
        return lineage_of(JobDatasets.of(settings), result)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return the same after a failure, with what the job delivered before it. The provider adds the error."""
        return self.get_openlineage_facets_on_complete(task_instance)

    def on_kill(self) -> None:
        """End the job and release its leases. It makes no request to Airflow, which may wait for the response to one.

        It runs in a signal handler, which may have interrupted a transaction of this task. So another thread does it,
        with its own connection to the store. If it waits for a lock of that transaction, the task continues, and
        waits for the thread at its end.
        """
        self._killing = threading.Thread(target=self._end_killed, name="end of a killed task", daemon=True)
        self._killing.start()
        self._killing.join(KILL_WAIT_SECONDS)

    @contextmanager
    def _finishing_kill(self) -> Iterator[None]:
        """Wait for the rest of `on_kill` before the task ends."""
        try:
            yield
        finally:
            if self._killing is not None:
                self._killing.join(KILL_END_SECONDS)

    def _end_killed(self) -> None:
        if self._follower is not None:
            try:
                self._follower.stop("its task was ended or cleared in Airflow", removes_settings=False)
            except Exception as error:
                self.log.warning("the stop request may not have reached the job: %s", error)
        self._abandon_job()

    def _report(
        self, context: Context, source: str, result: dict[str, Any], settings: IngestSettings | None
    ) -> dict[str, Any]:
        """Report a result to the outlets and return it for the XCom; keep what OpenLineage will request."""
        kind = None if settings is None else settings.reads.source_kind()
        report_to_outlets(context, self.outlets, source, result, no_stream if kind is None else kind.stream_of)
        self._lineage = None if settings is None else (settings, result)
        return {name: value for name, value in result.items() if name != "column_lineage"}

    # Without waiting

    def _follow(
        self, connection: ConnectionSettings, settings: IngestSettings, context: Context, suspension: Suspension | None
    ) -> dict[str, Any]:
        """Submit the job, or find the job of an earlier try, and defer until it has ended.

        :param suspension: how the source is suspended. The job of an earlier try is then about to end, and no other
            begins.
        """
        deadline = None if self.execution_timeout is None else datetime.now(UTC) + self.execution_timeout
        with failing_when_misconfigured():
            settings = followed(settings, self.start_timeout)
        follower = JobFollower.for_try(connection, settings.source, context)
        self._follower = follower
        while (earlier := follower.find_earlier(settings)) is not None:
            outcome = follower.outcome_of(earlier.owner)
            if not self._is_replaced(follower, earlier.owner, outcome):
                self.log.info("the job of an earlier try continues: source=%s owner=%s", settings.source, earlier.owner)
                return self._result_or_defer(follower, earlier.owner, outcome, earlier.log, deadline, settings)
        if suspension is not None:
            raise suspended_skip(settings.source, suspension)
        if (group := text_value(self.group)) is None:
            job_log = self.submit(follower, settings, partial(super().execute, context))
        else:
            job_log = None
            try:
                with failing_when_misconfigured():
                    JobGroup.named(group, connection).start(self, follower, settings, context)
            except BaseException as error:
                with suppress(CoordinationError):
                    follower.end(settings.owner, f"it was not submitted: {error}")
                raise
        outcome = follower.outcome_of(settings.owner)
        return self._result_or_defer(follower, settings.owner, outcome, job_log, deadline, settings)

    def _is_replaced(self, follower: JobFollower, owner: str, outcome: Outcome | None) -> bool:
        """Return whether another job replaces the earlier one, whose try may have been cleared after it was found."""
        is_replaced = follower.failed_or_stopped(owner, outcome)
        if is_replaced:
            self.log.info("the job of an earlier try did not succeed, another job follows: owner=%s", owner)
        return is_replaced

    def submit(
        self, follower: JobFollower, settings: ApplicationSettings, submitter: Callable[[], object] | None = None
    ) -> str | None:
        """Submit a job without waiting for it, in the deploy mode of the connection.

        :param follower: the follower of the job.
        :param settings: the job's settings, with `is_followed`, and with `expires_at` set to the instant when the job
            is given up if it has not begun.
        :param submitter: submits through the provider's operator, in a task of this operator; None to submit through
            its hook.
        :returns: the path of the job's output on this machine; None if the job runs in a cluster.
        :raises Exception: if the job could not be submitted. It is recorded as ended, and its files are removed.
        """
        self.log.info("job is submitted without waiting: source=%s owner=%s", settings.source, settings.owner)
        folder = job_folder()
        self._follower = follower
        job = self._new_job(settings, follower.connection, folder, follower, is_waited_for=False)
        try:
            settings.write(job.settings_file)
            with failing_when_misconfigured():
                if submitter is None:
                    self._hook = self._get_hook()
                    self._hook.submit(self.application)
                else:
                    submitter()
        except BaseException as error:
            self._abandon_job()
            shutil.rmtree(folder, ignore_errors=True)
            explained = job.output.explained(error)
            with suppress(CoordinationError):
                follower.end(settings.owner, job.output.redaction.text(f"it was not submitted: {explained}"))
            raise explained from error.__cause__
        if job.job_log is None:  # its files have travelled to the cluster
            shutil.rmtree(folder, ignore_errors=True)
        self._job = None
        return job.job_log

    def _result_or_defer(
        self,
        follower: JobFollower,
        owner: str,
        outcome: Outcome | None,
        job_log: str | None,
        deadline: datetime | None,
        settings: IngestSettings | None,
    ) -> dict[str, Any]:
        """Return the summary of a job that has ended; defer if it has not.

        :param outcome: how the job ended; None if it has not.
        :param settings: the job's settings, for redaction; None if they are no longer known.
        """
        self._follower = follower
        if outcome is None:
            self.job_urls = JobUrls(spark_ui=running_job_ui(self.coordination_conn_id, follower.source, owner))
            self.defer_until_over(follower, owner, deadline, job_log)
        self._follower = None
        show_log(job_log, self._redaction(settings or follower.connection.store))
        job = follower.note_reported(owner)
        self._set_job_urls(None if job is None else job.application_id)
        self._lineage = None if settings is None else (settings, result_of(owner, outcome, job))
        return summary_of(owner, outcome)

    def _redaction(self, holder: ApplicationSettings | StoreSettings) -> Redaction:
        """Return the redaction of the secrets that a job receives, in its settings or beside them."""
        return Redaction(holder, self.conf, self.env_vars, dict(os.environ))

    def _set_job_urls(self, application_id: str | None) -> None:
        """Set the URLs of a job that has ended."""
        ui = application_url(text_value(self.spark_ui_url), application_id)
        self.job_urls = JobUrls(spark_ui=ui, log=application_url(text_value(self.job_log_url), application_id))

    @override
    def follower_of(self, context: Context) -> JobFollower:
        connection = CoordinationHook(self.coordination_conn_id).settings
        source = self.job_settings(connection, context).source
        return JobFollower.for_try(connection, source, context)

    def _new_job(
        self,
        settings: ApplicationSettings,
        connection: ConnectionSettings,
        folder: Path,
        follower: JobFollower | None,
        *,
        is_waited_for: bool = True,
    ) -> JobSubmission:
        self._hook = None
        self._job = JobSubmission(
            settings, connection, folder, self._redaction(settings), follower, log=self.log, is_waited_for=is_waited_for
        )
        return self._job

    def _get_hook(self) -> SparkSubmitHook:
        """Return the provider's hook, with the task's own arguments and what this try's job needs."""
        hook = self._plain_hook()
        job = self._job
        if job is None:
            return hook
        with failing_when_misconfigured():
            prepared = job.prepared(
                self,
                submission_target(hook),
                spark_archive=text_value(self.spark_archive),
                kubernetes_conn_id=text_value(self.kubernetes_conn_id) or DEFAULT_CONN_ID,
            )
        hook = SparkSubmitOperator._get_hook(prepared)
        job.attach(hook, prepared.env_vars)
        return hook

    def _plain_hook(self) -> SparkSubmitHook:
        """Return the provider's hook, with only the task's own arguments."""
        return plain_hook(super()._get_hook)

    def _abandon_job(self) -> None:
        if self._job is not None:
            self._job.abandon(self._hook, super().on_kill)
