"""What a job did and how it ended: its summary, and its outcome in the record of the job that a task follows."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.held_leases import LeaseRenewer
from airflow_provider_coordination.coordination.job_reports import JobReport
from airflow_provider_coordination.coordination.jobs import HEARTBEAT, JobRecord
from airflow_provider_coordination.coordination.metrics import Metrics
from airflow_provider_coordination.coordination.partition import Partition, format_instant
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.texts import compress, decompress, storable
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.delivery import Prepared, Stage
from airflow_provider_coordination.spark.membership import current_membership
from airflow_provider_coordination.spark.settings import ApplicationSettings, SettingsReference
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER
from airflow_provider_coordination.stores import open_store

log = logging.getLogger(__name__)


RANGES_NAMED = 50
"""How many partitions a summary lists with the range that was delivered."""
COLUMNS_NAMED = 200
SETS_NAMED = 1000
"""How many pending sets a summary names: as many as Airflow maps over by default."""
EXIT_SUCCESS = 0
EXIT_FAILED = 1
"""Something failed; landed batches stay, and the next job continues with them."""
EXIT_LOST_WORK = 75
"""Leases were lost during the job (EX_TEMPFAIL): other workers continue their partitions, and a retry can succeed."""
EXIT_CONFIGURATION = 78
"""The settings are wrong (EX_CONFIG): a retry cannot succeed."""
SUMMARY_MARK = "coordination-summary: "
"""The prefix of the output line that holds the job's summary as JSON."""
APPLICATION_MARK = "spark application: "
"""The prefix of the log message with the Spark application's id and the URL of its UI."""
MAX_ERROR_CHARACTERS = 2000
MAX_SUMMARY_CHARACTERS = 36_000
"""A stored progress holds 64 KB; a summary that names a thousand acknowledgment sets is larger, and is compressed."""


@dataclass
class Summary:
    """What a job did.

    :param rounds: how many rounds it made.
    :param records_landed: user records read and landed.
    :param records_delivered: user records of the batches that were delivered.
    :param bytes_delivered: their payload bytes.
    :param batches_delivered: how many batches.
    :param partitions_delivered: of how many partitions.
    :param ranges: the delivered range of each of these partitions, the first 50: the positions `from` (exclusive) and
        `to`, the number of `records`, and the `last_arrival` if the source reports it.
    :param columns: the types of the main dataset's columns at the last delivery, by name, the first 200.
    :param column_lineage: what these columns are made of; see `column_lineage.ColumnLineage`.
    :param records_by_sink: the number of records that each sink took.
    :param refused_by_sink: the number of rows that each sink refused, and that went to the dead-letter sink instead.
    :param held_by_sink: how often a batch waited for an unavailable sink, by sink.
    :param at_least_once: the names of the sinks that may have got a batch more than once.
    :param dead_letters: the number of records that went to the dead-letter sink: bad records, rows that a sink refused,
        and with `keeps_rejected`, late and early records.
    :param unrouted: the number of records that no sink took.
    :param thrown_away: the number of records that were left out because they are late or early.
    :param parse_exceptions: the number of bad records and refused rows that it found, including batches that were
        refused for them.
    :param saved_parse_exceptions: the latest bad records, at most `max_saved_parse_exceptions`.
    :param completed: the partitions that it completed.
    :param lost: the partitions whose lease it lost; other workers continue them.
    :param closed: the partitions that it finished for now; they are closed, to be read again later.
    :param handed_over: the partitions that it handed over to other workers that requested them.
    :param failed: the reason, for each partition that failed and did not progress afterwards in this job.
    :param resting: the partitions that waited after failures, or were parked, at its end.
    :param gone: the number of items, such as objects, that were deleted before they were read.
    :param set_aside: the number of items that could not be read; they become partitions of their own.
    :param data_loss: what was gone before it was read, by partition; the latest range of each.
    :param pending_acknowledgments: the number of delivered batches that are not yet acknowledged outside the job.
    :param acknowledgment_sets: the names of their sets, the first 1,000.
    :param slot_memory_bytes: the largest number of bytes that a Spark task held of what it read.
    :param seconds: how long the job ran.
    :param stopped_because: the condition that ended the job.
    :param metrics: the totals of the job's metrics, without zeros.
    """

    rounds: int = 0
    records_landed: int = 0
    records_delivered: int = 0
    bytes_delivered: int = 0
    batches_delivered: int = 0
    partitions_delivered: int = 0
    ranges: dict[str, dict[str, Any]] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    column_lineage: dict[str, Any] = field(default_factory=dict)
    records_by_sink: dict[str, int] = field(default_factory=dict)
    refused_by_sink: dict[str, int] = field(default_factory=dict)
    held_by_sink: dict[str, int] = field(default_factory=dict)
    at_least_once: list[str] = field(default_factory=list)
    dead_letters: int = 0
    unrouted: int = 0
    thrown_away: int = 0
    parse_exceptions: int = 0
    saved_parse_exceptions: list[dict[str, Any]] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    handed_over: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    resting: list[str] = field(default_factory=list)
    gone: int = 0
    set_aside: int = 0
    data_loss: dict[str, str] = field(default_factory=dict)
    pending_acknowledgments: int = 0
    acknowledgment_sets: list[str] = field(default_factory=list)
    slot_memory_bytes: int = 0
    seconds: float = 0.0
    stopped_because: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    def note_delivered(self, key: str, batch: LandedBatch, delivered: Prepared, *, is_first: bool) -> None:
        """Note that a batch of a partition was delivered.

        :param is_first: whether it is the first batch of its partition in this job.
        """
        self.batches_delivered += 1
        self.partitions_delivered += is_first
        self.records_delivered += batch.records
        self.bytes_delivered += batch.bytes
        self.unrouted += delivered.unrouted
        self.thrown_away += delivered.left_out.get(Stage.TIME, 0)
        self.dead_letters += delivered.records.get(DEAD_LETTER, 0)
        for sink, records in delivered.records.items():
            self.records_by_sink[sink] = self.records_by_sink.get(sink, 0) + records
        for sink, rows in delivered.refused.items():
            self.refused_by_sink[sink] = self.refused_by_sink.get(sink, 0) + rows
        if delivered.columns:
            self.columns = dict(islice(delivered.columns.items(), COLUMNS_NAMED))
            self.column_lineage = dict(delivered.lineage)
        known = self.ranges.get(key)
        if known is None and (not is_first or len(self.ranges) >= RANGES_NAMED):
            return
        self.ranges[key] = {
            "from": known["from"] if known else batch.start,
            "to": batch.end,
            "records": (known["records"] if known else 0) + batch.records,
            "last_arrival": None if batch.last_arrival is None else format_instant(batch.last_arrival),
        }

    def note_progress(self, key: str) -> None:
        """Note that a partition progressed: an earlier failure of it is then no failure of the job."""
        self.failed.pop(key, None)

    def note_pending(self, sets: Sequence[str]) -> None:
        """Note the sets of delivered batches that are not yet acknowledged outside the job."""
        self.pending_acknowledgments += len(sets)
        self.acknowledgment_sets += sets[: SETS_NAMED - len(self.acknowledgment_sets)]

    def note_resting(self, closed: Iterable[Partition]) -> None:
        """Note which of the source's closed partitions wait after failures, or are parked."""
        for partition in closed:
            if not partition.attempts:
                continue
            self.resting.append(partition.partition_key)
            log.warning(
                "not delivered: partition %s %s after %d failures; the last failure: %s",
                partition.partition_key,
                "is parked" if partition.is_parked else f"waits until {partition.reopen_at:%Y-%m-%dT%H:%M:%SZ}",
                partition.attempts, partition.last_error,
            )  # fmt: skip

    def to_mapping(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        return asdict(self) | {"seconds": round(self.seconds, 1)}


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

    def note_reading(self, reporting: Callable[[], JobReport] | None = None) -> None:
        """Record that the job acquires leases from now on; the thread that keeps the record then writes its report.

        A supervisor that hands over to this job waits for this before it ends the previous job.

        :param reporting: returns the report as of now; None for no report.
        """
        self._reporting = reporting
        if self._record is not None:
            self._record.note_reading()

    def note_ending(self) -> None:
        """Record that the job begins to end on its own, so that nobody relies on it; a failure does no harm."""
        if self._record is not None:
            with suppress(CoordinationError):
                self._record.note(stop="it ends")

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
def followed_job(settings: ApplicationSettings, reference: SettingsReference | None = None) -> Iterator[FollowedJob]:
    """Create the record of a followed job, and keep it alive while the block runs.

    The job's settings are deleted: they are no longer needed, and no task waits to delete them.

    :param reference: the location of the settings; None if nothing is left of them.
    :raises SettingsTakenError: if the settings were used by another driver.
    :raises CoordinationError: if the store is unavailable.
    """
    if not settings.is_followed:
        yield FollowedJob()
        return
    if reference is not None:
        reference.delete()
    with coordinating(settings, settings.owner) as coordinator:
        followed = FollowedJob()
        record = JobRecord(coordinator, followed.note_stop, followed.report)
        followed._record = record
        record.begin()
        with LeaseRenewer(record, interval=HEARTBEAT):
            yield followed


@contextmanager
def coordinating(
    settings: ApplicationSettings, owner: str, metrics: Metrics | None = None
) -> Iterator[SourceCoordinator]:
    """Keep a job's store open while the block runs; yield a coordinator of its source, see `coordinator_of`.

    Jobs that share a Spark application share its connections to the store as well.
    """
    member = current_membership()
    if member is not None and member.stores is not None:
        yield coordinator_of(settings, owner, metrics, member.stores.get(settings.store))
        return
    coordinator = coordinator_of(settings, owner, metrics)
    with closing(coordinator.store):
        yield coordinator


def coordinator_of(
    settings: ApplicationSettings,
    owner: str,
    metrics: Metrics | None = None,
    store: CoordinationStore | None = None,
) -> SourceCoordinator:
    """Return an initialized coordinator of a job's source.

    :param owner: the owner for which the coordinator acts.
    :param metrics: receives the counts.
    :param store: the open store; None to open it.
    :raises CoordinationError: if the store is unavailable.
    """
    coordinator = SourceCoordinator(
        store or open_store(settings.store),
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
