"""Task that waits, deferred, for a job that another tool submitted."""

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
from airflow_provider_coordination.operators.job_follower import JobFollower, summary_of, time_left, will_be_retried
from airflow_provider_coordination.operators.outlets import no_stream, report_to_outlets
from airflow_provider_coordination.operators.prepared_jobs import PreparedJob
from airflow_provider_coordination.triggers.events import ERROR
from airflow_provider_coordination.triggers.jobs import JobTrigger


class FollowJobOperator(BaseOperator):
    """Waits in the triggerer for a job that `prepare_job` prepared and another tool submitted.

    The job's record in the store shows its state, whatever runs the job. The task deletes the rest of the job's
    settings. It fails with the job's own error and without a retry, because settings serve only one driver: prepare
    another job to try again. If a user ends the task, or it runs out of time, the job is requested to stop.

    Returns the job's summary, with its `owner`.

    :param job: the result of `PreparedJob.to_mapping`. (templated)
    """

    template_fields: Sequence[str] = ("job",)
    operator_extra_links = (LeasesLink(),)

    def __init__(self, *, job: Mapping[str, Any] | PreparedJob, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.source_worked_on = ""
        self.coordination_conn_id = CoordinationHook.default_conn_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Defer until the job has ended.

        :raises AirflowFailException: if the job failed, lost its leases, vanished, or did not begin in time.
        """
        deadline = None if self.execution_timeout is None else datetime.now(UTC) + self.execution_timeout
        return self._result_or_defer(context, deadline)

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Resume after a deferral.

        :param event: the payload of the trigger's event.
        :raises AirflowFailException: as `execute`.
        """
        if event is None or "owner" not in event or event.get("status") == ERROR:
            raise AirflowFailException((event or {}).get("message") or f"the trigger sent no event: {event!r}")
        return self._result_or_defer(context, None if event["deadline"] is None else parse_instant(event["deadline"]))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral; stop the job if no try will follow it.

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

    def _result_or_defer(self, context: Context, deadline: datetime | None) -> dict[str, Any]:
        job, follower = self._followed()
        outcome = follower.outcome_of(job.owner)
        if outcome is None:
            self.defer(
                trigger=JobTrigger(
                    source=job.source,
                    owner=job.owner,
                    coordination_conn_id=job.coordination_conn_id,
                    deadline=None if deadline is None else format_instant(deadline),
                ),
                method_name=self.execute_complete.__name__,
                timeout=time_left(deadline),
            )
        follower.note_reported(job.owner)
        try:
            result = summary_of(job.owner, outcome)
        except AirflowFailException:
            raise
        except Exception as error:
            remedy = "to prepare another job, clear the task that prepared this one"
            raise AirflowFailException(f"{error}; {remedy}") from None
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
        except Exception as error:  # the task fails with its own error, not with this one
            self.log.warning("the stop request may not have reached the job: %s", error)
