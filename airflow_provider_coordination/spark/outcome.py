"""A job's outcome, which the job stores for the task that follows it, and the record that holds it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.job_reports import JobReport
from airflow_provider_coordination.coordination.jobs import HEARTBEAT, JobRecord
from airflow_provider_coordination.coordination.metrics import Metrics
from airflow_provider_coordination.coordination.renewal import LeaseRenewer
from airflow_provider_coordination.coordination.texts import compress, decompress, storable
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.settings_reference import SettingsReference
from airflow_provider_coordination.stores import open_store

log = logging.getLogger(__name__)

EXIT_SUCCESS = 0
EXIT_FAILED = 1
"""Something failed; landed batches stay, and the next job continues with them."""
EXIT_LOST_WORK = 75
"""Leases were lost during the job (EX_TEMPFAIL): other workers continue their partitions, and a retry can succeed."""
EXIT_CONFIGURATION = 78
"""The settings are wrong (EX_CONFIG): a retry cannot succeed."""

MAX_ERROR_CHARACTERS = 2000
MAX_SUMMARY_CHARACTERS = 36_000
"""A stored progress holds 64 KB; a summary that names a thousand acknowledgment sets is larger, and is compressed."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a job.

    :param exit_code: the exit code of the driver or of its spark-submit; negative for a signal; None if the job
        vanished.
    :param error: the job's own last error; None if it has none.
    :param tail: the last lines of its output, if the job could not record its outcome itself.
    :param summary: the job's summary; empty if it made none.
    """

    exit_code: int | None
    error: str | None = None
    tail: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object of bounded size."""
        return {
            "exit_code": self.exit_code,
            "error": None if self.error is None else storable(self.error, MAX_ERROR_CHARACTERS),
            "tail": storable(self.tail[-MAX_ERROR_CHARACTERS:], MAX_ERROR_CHARACTERS),
            "summary": _bounded(self.summary),
        }

    @classmethod
    def from_mapping(cls, stored: Mapping[str, Any]) -> Outcome:
        """Return the outcome that `to_mapping` made; fields of another type are ignored."""
        code, error, tail = stored.get("exit_code"), stored.get("error"), stored.get("tail")
        return cls(
            exit_code=code if isinstance(code, int) else None,
            error=error if isinstance(error, str) else None,
            tail=tail if isinstance(tail, str) else "",
            summary=_summary_of(stored.get("summary")),
        )


class FollowedJob:
    """The record of a followed job, as the job sees it: it reports there, and receives requests to stop.

    :param record: the job's item in the store; None if the job is not followed, so that nothing is recorded.
    """

    def __init__(self, record: JobRecord | None = None) -> None:
        self._record = record
        self._stop: Callable[[], None] | None = None
        self._reporting: Callable[[], JobReport] | None = None
        self.is_stopped = False

    def note_application(self, application_id: str, ui_url: str | None) -> None:
        """Record the id of the job's Spark application and the URL of its UI."""
        if self._record is not None:
            self._record.note(application_id=application_id, ui_url=ui_url)

    def note_reading(self, reporting: Callable[[], JobReport]) -> None:
        """Record that the job acquires leases from now on; the thread that keeps the record then writes its report.

        A supervisor that hands over to this job waits for this before it ends the previous job.

        :param reporting: returns the report as of now.
        """
        self._reporting = reporting
        if self._record is not None:
            self._record.note_reading()

    def report(self) -> JobReport | None:
        """Return the job report; None if the job has not started to read."""
        return None if self._reporting is None else self._reporting()

    def record_outcome(self, outcome: Outcome) -> None:
        """Store the outcome; without it, the task that waits for the job only sees that the job vanished."""
        if self._record is not None:
            try:
                self._record.end(outcome.to_mapping())
            except CoordinationError as error:
                log.warning("the job's outcome could not be stored: %s", error)

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Call a function when the job is requested to stop, or now if it was already."""
        self._stop = stop
        if self.is_stopped:
            stop()

    def note_stop(self, why: str) -> None:
        """Note a request to stop the job. Called from the thread that reads it."""
        self.is_stopped = True
        if self._stop is not None:
            self._stop()


@contextmanager
def followed_job(settings: IngestSettings, reference: SettingsReference) -> Iterator[FollowedJob]:
    """Create the record of a followed job, and keep it alive while the block runs.

    The job's settings are deleted: they are no longer needed, and no task waits to delete them.

    :raises SettingsTakenError: if the settings were used by another driver.
    :raises CoordinationError: if the store is unavailable.
    """
    if not settings.is_followed:
        yield FollowedJob()
        return
    reference.delete()
    coordinator = coordinator_of(settings, settings.owner)
    with closing(coordinator.store):
        followed = FollowedJob()
        record = JobRecord(coordinator, followed.note_stop, followed.report)
        followed._record = record
        record.begin()
        with LeaseRenewer(record, interval=HEARTBEAT):
            yield followed


def coordinator_of(settings: IngestSettings, owner: str, metrics: Metrics | None = None) -> SourceCoordinator:
    """Open a job's store; return an initialized coordinator of its source.

    :param owner: the owner for which the coordinator acts.
    :param metrics: receives the counts.
    :raises CoordinationError: if the store is unavailable.
    """
    coordinator = SourceCoordinator(
        open_store(settings.store),
        settings.source,
        owner,
        prefix=settings.prefix,
        ownership_timeout=settings.ownership_timeout,
        safety_margin=settings.safety_margin,
        retry_policy=settings.retry_policy,
        metrics=metrics,
    )
    coordinator.initialize()
    return coordinator


def _bounded(summary: Mapping[str, Any]) -> Any:
    """Return a summary as JSON of bounded size: unchanged, compressed, or with its longest lists shortened."""
    shortened = dict(summary)
    while True:
        if len(json.dumps(shortened)) <= MAX_SUMMARY_CHARACTERS:
            return shortened
        text = compress(shortened)
        if len(text) <= MAX_SUMMARY_CHARACTERS:
            return text
        name = max(shortened, key=lambda name: len(json.dumps(shortened[name])))
        value = shortened[name]
        if isinstance(value, list):
            shortened[name] = value[: len(value) // 2]
        elif isinstance(value, dict):
            shortened[name] = dict(list(value.items())[: len(value) // 2])
        else:
            shortened[name] = str(value)[: MAX_ERROR_CHARACTERS // 2]


def _summary_of(stored: object) -> Mapping[str, Any]:
    if isinstance(stored, str):
        try:
            stored = decompress(stored)
        except ValueError:
            stored = None
    return stored if isinstance(stored, Mapping) else {}
