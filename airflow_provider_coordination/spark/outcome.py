"""How a job ended, as it leaves it in the store for whoever comes back, and the record in which it does."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.coordination.compression import packed, unpacked
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.job_reports import JobReport
from airflow_provider_coordination.coordination.jobs import HEARTBEAT, JobRecord
from airflow_provider_coordination.coordination.metrics import Metrics
from airflow_provider_coordination.coordination.renewal import LeaseRenewer
from airflow_provider_coordination.coordination.storable_text import storable
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.settings_reference import SettingsReference
from airflow_provider_coordination.stores import open_store

log = logging.getLogger(__name__)

MAX_ERROR_CHARACTERS = 2000
MAX_SUMMARY_CHARACTERS = 36_000
"""A stored progress has 64 KB; a summary that names a thousand acknowledgment sets is larger, and is compressed."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended.

    :param exit_code: the driver's, or that of the spark-submit above it; negative for a signal; None if it vanished.
    :param error: the job's own last error; None if it has none.
    :param tail: the last lines of its output, where it could not say itself how it ended.
    :param summary: its summary; empty if it made none.
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
    def from_mapping(cls, said: Mapping[str, Any]) -> Outcome:
        """Return the outcome that `to_mapping` made; what it says in another form is passed over."""
        code, error, tail = said.get("exit_code"), said.get("error"), said.get("tail")
        return cls(
            exit_code=code if isinstance(code, int) else None,
            error=error if isinstance(error, str) else None,
            tail=tail if isinstance(tail, str) else "",
            summary=_summary_of(said.get("summary")),
        )


class Followed:
    """A job's side of being followed: what it tells of itself, and that it is told to stop.

    :param record: the job's item; None where nobody follows it, and nothing is told.
    """

    def __init__(self, record: JobRecord | None = None) -> None:
        self._record = record
        self._stop: Callable[[], None] | None = None
        self._reporting: Callable[[], JobReport] | None = None
        self.is_stopped = False

    def began(self, application_id: str, ui_url: str | None) -> None:
        """Tell where the job's Spark application is."""
        if self._record is not None:
            self._record.note(application_id=application_id, ui_url=ui_url)

    def reads(self, reporting: Callable[[], JobReport]) -> None:
        """Note that the job takes leases from now on, and have its report written by the thread that keeps the record.

        Whoever hands over to this job ends the other one because of that: not before it can read.

        :param reporting: returns the report as of now.
        """
        self._reporting = reporting
        if self._record is not None:
            self._record.reads()

    def report(self) -> JobReport | None:
        """Return what the job reports of itself; None if it has not begun."""
        return None if self._reporting is None else self._reporting()

    def ended(self, outcome: Outcome) -> None:
        """Leave the outcome in the store; whoever waits for it learns otherwise only that the job vanished."""
        if self._record is not None:
            try:
                self._record.end(outcome.to_mapping())
            except CoordinationError as error:
                log.warning("the outcome could not be left in the store: %s", error)

    def when_stopped(self, stop: Callable[[], None]) -> None:
        """Have something called when the job is told to stop, or at once if it was."""
        self._stop = stop
        if self.is_stopped:
            stop()

    def note_stop(self, why: str) -> None:
        """Note that the job is told to stop. Called from the thread that finds out."""
        self.is_stopped = True
        if self._stop is not None:
            self._stop()


@contextmanager
def following(settings: IngestSettings, reference: SettingsReference) -> Iterator[Followed]:
    """Begin a job's record and keep it alive while the block runs, where the job is followed.

    The settings are deleted, which nobody needs any more and no task waits to delete.

    :raises SettingsTakenError: if they have served another driver.
    :raises CoordinationError: if the store does not answer.
    """
    if not settings.is_followed:
        yield Followed()
        return
    reference.delete()
    coordinator = coordinator_of(settings, settings.owner)
    with closing(coordinator.store):
        followed = Followed()
        record = JobRecord(coordinator, followed.note_stop, followed.report)
        followed._record = record
        record.begin()
        with LeaseRenewer(record, interval=HEARTBEAT):
            yield followed


def coordinator_of(settings: IngestSettings, owner: str, metrics: Metrics | None = None) -> SourceCoordinator:
    """Open a job's store; return an initialized coordinator of its source.

    :param owner: who acts.
    :param metrics: where counts go.
    :raises CoordinationError: if the store does not answer.
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
    """Return a summary as JSON of bounded size: as it is, compressed, or with its longest lists cut short."""
    shortened = dict(summary)
    while True:
        if len(json.dumps(shortened)) <= MAX_SUMMARY_CHARACTERS:
            return shortened
        text = packed(shortened)
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


def _summary_of(said: object) -> Mapping[str, Any]:
    if isinstance(said, str):
        try:
            said = unpacked(said)
        except ValueError:
            said = None
    return said if isinstance(said, Mapping) else {}
