"""The settings objects that a task passes to its job, by topic. Each object travels unchanged from operator to job.

Once templates are rendered, values have the types of the fields; see `operators.templated.resolved`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from airflow_provider_coordination.coordination.acknowledgment import MAX_NAME_CHARACTERS
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import format_instant

MAX_SAVED_PARSE_EXCEPTIONS = 100
SAVED_WITHOUT_PAYLOADS = 5
"""How many bad records are listed by default, without their payloads."""
MIN_SLOT_MEMORY_BYTES = 32 * 2**20
"""The memory for a page of 10 MiB from the socket to its columns, with all intermediate forms."""
BY_JOB = "job"
"""Only the job's sinks acknowledge."""
DOWNSTREAM = "downstream"
"""The default handle of tasks that acknowledge after the job."""


@dataclass(kw_only=True)
class RoundSettings:
    """How a job makes its rounds, and when it ends.

    :param round_duration: how long a partition is read in one round; timedelta or seconds. A partition of items is read
        on to the next position at which its reader allows a cut. (templated)
    :param idle_duration: the pause after a round without a record; timedelta or seconds. (templated)
    :param max_batch_bytes: about how many bytes are read of one partition in one round; more if an item's reader allows
        no cut. (templated)
    :param slot_memory_bytes: the maximum number of bytes that one Spark task holds of what it reads, at least 32 MiB.
        The task reads as many of its partitions at the same time as this allows. An item whose reader allows no cut is
        held whole. (templated)
    :param until_caught_up: stop once everything that was in the source at the start is delivered; if partitions come to
        an end, stop once none is left. (templated)
    :param max_duration: start no round later than this after the job's start; timedelta or seconds; None for no limit.
        (templated)
    :param max_idle_rounds: stop after this number of consecutive rounds without a record; None for no limit.
        (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "round_duration",
        "idle_duration",
        "max_batch_bytes",
        "slot_memory_bytes",
        "until_caught_up",
        "max_duration",
        "max_idle_rounds",
    )

    round_duration: timedelta = timedelta(seconds=10)
    idle_duration: timedelta = timedelta(seconds=2)
    max_batch_bytes: int = 32 * 1024 * 1024
    slot_memory_bytes: int = 512 * 1024 * 1024
    until_caught_up: bool = True
    max_duration: timedelta | None = None
    max_idle_rounds: int | None = None

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        for name in ("round_duration", "max_batch_bytes", "max_duration", "max_idle_rounds"):
            _check_positive(self, name)
        if self.slot_memory_bytes < MIN_SLOT_MEMORY_BYTES:
            raise ConfigurationError(
                "RoundSettings: field 'slot_memory_bytes' must be at least "
                f"{MIN_SLOT_MEMORY_BYTES}, which one page of 10 MiB needs; got {self.slot_memory_bytes}"
            )
        if self.idle_duration < timedelta(0):
            raise ConfigurationError(
                f"RoundSettings: field 'idle_duration' must not be negative; got {_shown(self.idle_duration)}"
            )


@dataclass(kw_only=True)
class AcknowledgmentSettings:
    """Who acknowledges a batch, and how long that may take.

    :param by: `"job"` if a batch is delivered once the job's sinks have it; `"downstream"` if a later task such as an
        `AcknowledgeOperator` acknowledges it as well; or a list of the names of such handles. (templated)
    :param timeout: how long a batch may wait for an acknowledgment without progress before it is delivered again;
        timedelta or seconds. (templated)
    :param max_pending_batches: how many batches of one partition may be landed and not acknowledged; a partition with
        more is not read further. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = ("by", "timeout", "max_pending_batches")

    by: str | tuple[str, ...] = BY_JOB
    timeout: timedelta = timedelta(hours=1)
    max_pending_batches: int = 16

    @property
    def handles(self) -> tuple[str, ...]:
        """The handles that later tasks release before a batch is delivered; empty if only the job acknowledges."""
        if isinstance(self.by, str):
            return () if self.by == BY_JOB else (self.by,)
        return self.by

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        for name in ("timeout", "max_pending_batches"):
            _check_positive(self, name)
        if not self.by or (isinstance(self.by, str) and self.by not in (BY_JOB, DOWNSTREAM)):
            raise ConfigurationError(
                f"AcknowledgmentSettings: field 'by' must be {BY_JOB!r}, {DOWNSTREAM!r} or a list of names; got "
                f"{self.by!r}"
            )
        for n, handle in enumerate(self.handles):
            if not handle or not handle.isprintable() or len(handle) > MAX_NAME_CHARACTERS:
                raise ConfigurationError(
                    f"AcknowledgmentSettings: field 'by': {handle!r} is invalid; use 1 to {MAX_NAME_CHARACTERS} "
                    "printable characters"
                )
            if handle in self.handles[:n]:
                raise ConfigurationError(
                    f"AcknowledgmentSettings: field 'by': {handle!r} is named twice; name each once"
                )


@dataclass(kw_only=True)
class BadRecordSettings:
    """What happens to records that cannot be parsed or transformed.

    :param dead_letter_path: the folder for bad records and their errors: a path or URI that every worker reaches;
        without it, a bad record fails its batch. (templated)
    :param max_parse_exceptions: the maximum number of bad records in one run of the job; None for no limit. (templated)
    :param max_saved_parse_exceptions: how many of the latest bad records the job's summary and reports list, with the
        start of their payloads; None for 5 without payloads. (templated)
    :param keeps_rejected: whether records that `RejectionSettings` reject go to `dead_letter_path` too. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "dead_letter_path",
        "max_parse_exceptions",
        "max_saved_parse_exceptions",
        "keeps_rejected",
    )

    dead_letter_path: str | None = None
    max_parse_exceptions: int | None = None
    max_saved_parse_exceptions: int | None = None
    keeps_rejected: bool = False

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if self.dead_letter_path is not None and not self.dead_letter_path.strip():
            raise ConfigurationError("BadRecordSettings: field 'dead_letter_path' must not be empty; leave it out")
        if self.max_parse_exceptions is not None and self.max_parse_exceptions < 0:
            raise ConfigurationError(
                f"BadRecordSettings: field 'max_parse_exceptions' must not be negative; got "
                f"{self.max_parse_exceptions!r}"
            )
        saved = self.max_saved_parse_exceptions
        if saved is not None and not 0 <= saved <= MAX_SAVED_PARSE_EXCEPTIONS:
            raise ConfigurationError(
                "BadRecordSettings: field 'max_saved_parse_exceptions' must be from 0 to "
                f"{MAX_SAVED_PARSE_EXCEPTIONS}; got {saved!r}"
            )
        if self.keeps_rejected and self.dead_letter_path is None:
            raise ConfigurationError(
                "BadRecordSettings: field 'keeps_rejected' is true, and 'dead_letter_path' is missing: give the path "
                "for rejected records"
            )


@dataclass(kw_only=True)
class RejectionSettings:
    """Which records are late or early, and therefore left out.

    The bounds are recorded with each batch when it is landed. So every job that delivers it leaves the same records
    out, even a job with other bounds. A record whose event time is null is neither late nor early.

    :param event_time: the column of `schema` with the time of the event: a TIMESTAMP, a TIMESTAMP_NTZ in UTC, or a
        BIGINT of milliseconds since 1970; None rejects no records. (templated)
    :param earliest: records before this instant (aware) are late; None for no such bound. (templated)
    :param latest: records after this instant (aware) are early; None for no such bound. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = ("event_time", "earliest", "latest")

    event_time: str | None = None
    earliest: datetime | None = None
    latest: datetime | None = None

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        bounds = {"earliest": self.earliest, "latest": self.latest}
        given_bounds = [name for name, bound in bounds.items() if bound is not None]
        if given_bounds and not self.event_time:
            raise ConfigurationError(
                f"RejectionSettings: field 'event_time' is missing, beside {given_bounds[0]!r}: name the column of "
                "'schema' by which records are late or early"
            )
        if self.event_time and not given_bounds:
            raise ConfigurationError(
                f"RejectionSettings: field 'event_time' is {self.event_time!r}, and there is no bound: give "
                "'earliest', 'latest' or both"
            )
        if self.event_time and len(self.event_time) > MAX_NAME_CHARACTERS:
            raise ConfigurationError(
                f"RejectionSettings: field 'event_time' has {len(self.event_time)} characters; give a column whose "
                f"name has at most {MAX_NAME_CHARACTERS}"
            )
        if self.earliest is not None and self.latest is not None and self.earliest > self.latest:
            raise ConfigurationError(
                f"RejectionSettings: field 'earliest' is {format_instant(self.earliest)}, after 'latest', which is "
                f"{format_instant(self.latest)}: every record would be rejected"
            )


def _check_positive(settings: Any, name: str) -> None:
    value = getattr(settings, name)
    if value is not None and value <= type(value)(0):
        raise ConfigurationError(f"{type(settings).__name__}: field {name!r} must be positive; got {_shown(value)}")


def _shown(value: Any) -> str:
    return f"{value.total_seconds():g} seconds" if isinstance(value, timedelta) else repr(value)
