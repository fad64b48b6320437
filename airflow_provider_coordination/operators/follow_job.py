"""A task that waits, deferred, for a job that somebody else submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, TaskDeferralError, TaskDeferralTimeout

from airflow_provider_coordination.coordination.partition import format_instant, parse_instant
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.job_follower import JobFollower, left_of, summary_of, will_be_retried
from airflow_provider_coordination.operators.outlets import no_stream, report_to_outlets
from airflow_provider_coordination.operators.prepared_jobs import PreparedJob
from airflow_provider_coordination.triggers.events import ERROR
from airflow_provider_coordination.triggers.jobs import JobTrigger


class FollowJobOperator(BaseOperator):
    """Waits in the triggerer for a job that `prepare_job` made ready, and somebody else submitted.

    The job's record in the store says what becomes of it, whatever runs it. The task removes what is left of the job's
    settings. It fails by the job's own error, and for good, as the job has had its driver: another job is one that is
    prepared anew. If the task is ended by hand, or runs out of time, the job is told to stop.

    Returns the job's summary, with its `owner`.

    :param job: what `PreparedJob.to_mapping` returned. (templated)
    """

    template_fields: Sequence[str] = ("job",)
    operator_extra_links = (LeasesLink(),)

    def __init__(self, *, job: Mapping[str, Any] | PreparedJob, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.source_worked_on = ""
        self.coordination_conn_id = CoordinationHook.default_conn_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Defer until the job is over.

        :raises AirflowFailException: if the job failed, lost its leases, vanished, or did not begin in time.
        """
        deadline = None if self.execution_timeout is None else datetime.now(UTC) + self.execution_timeout
        return self._go_on(context, deadline)

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Go on after a deferral.

        :param event: the payload of the trigger's event.
        :raises AirflowFailException: as `execute`.
        """
        if event is None or "owner" not in event or event.get("status") == ERROR:
            raise AirflowFailException((event or {}).get("message") or f"the trigger sent no event: {event!r}")
        return self._go_on(context, None if event["deadline"] is None else parse_instant(event["deadline"]))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral; if nobody will come back for the job, stop it.

        :raises TaskDeferralError: if the deferral ran out of time, or its trigger failed.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._stop("its task ran out of time")
            raise
        except TaskDeferralError:
            if not will_be_retried(context):
                self._stop("its task failed")
            raise

    def _go_on(self, context: Context, deadline: datetime | None) -> dict[str, Any]:
        job, follower = self._followed()
        outcome = follower.judged(job.owner)
        if outcome is None:
            self.defer(
                trigger=JobTrigger(
                    source=job.source,
                    owner=job.owner,
                    coordination_conn_id=job.coordination_conn_id,
                    deadline=None if deadline is None else format_instant(deadline),
                ),
                method_name=self.execute_complete.__name__,
                timeout=left_of(deadline),
            )
        follower.note_reported(job.owner)
        try:
            result = summary_of(job.owner, outcome)
        except AirflowFailException:
            raise
        except Exception as error:
            raise AirflowFailException(f"{error}; prepare a job anew: clear the task that prepared this one") from None
        report_to_outlets(context, self.outlets, job.source, result, no_stream)
        return result

    def _followed(self) -> tuple[PreparedJob, JobFollower]:
        with failing_when_misconfigured():
            job = self.job if isinstance(self.job, PreparedJob) else PreparedJob.from_mapping(self.job)
            connection = CoordinationHook(job.coordination_conn_id).settings
        self.source_worked_on, self.coordination_conn_id = job.source, job.coordination_conn_id
        return job, JobFollower(connection=connection, source=job.source, task=job.task)

    def _stop(self, reason: str) -> None:
        try:
            _, follower = self._followed()
            follower.stop(reason)
        except Exception as error:  # the task fails by what happened to it, not by this
            self.log.warning("the job may not have been told to stop: %s", error)
