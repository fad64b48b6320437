"""The settings objects that a task passes to its job, by topic. Each object travels unchanged from operator to job.

Once templates are rendered, values have the types of the fields; see `Described`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from airflow_provider_coordination.coordination.acknowledgment import MAX_NAME_CHARACTERS
from airflow_provider_coordination.coordination.balance import BALANCE_BY, BY_COUNT
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.held_leases import DEFAULT_HANDOVER_TIMEOUT
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.field_hints import Limits
from airflow_provider_coordination.settings import Described, FieldError, is_template, text_value

NO_TIME = timedelta(0)
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
class RoundSettings(Described):
    """How a job makes its rounds, and when it ends.

    :param round_duration: how long a partition is read in one round. Items are read on to the next position at which
        their reader allows a cut. (templated)
    :param idle_duration: the pause after a round without a record. (templated)
    :param freshness: the target for the time from a record's arrival until it is visible in every sink, for 95 percent
        of the records. Rounds become as short as the target needs and the sinks allow, at most `round_duration` long.
        None for no target. (templated)
    :param weight: how large the job's share of the slots is in a group, from 1 to 4: with 2, twice as much as with 1.
        (templated)
    :param max_batch_bytes: about how many bytes are read of one partition in one round; more if an item's reader allows
        no cut. (templated)
    :param slot_memory_bytes: the maximum number of bytes that one Spark task holds at a time, at least 32 MiB; more if
        an item's reader allows no cut. (templated)
    :param until_caught_up: stop once everything that was in the source at the start is delivered; if partitions come to
        an end, stop once none is left. (templated)
    :param max_duration: start no round later than this after the job's start; None for no limit.
        (templated)
    :param max_idle_rounds: stop after this number of consecutive rounds without a record; None for no limit. Rounds in
        which a shard waits for others do not count.
        (templated)
    """

    round_duration: Annotated[timedelta, Limits(above=NO_TIME)] = timedelta(seconds=10)
    idle_duration: Annotated[timedelta, Limits(minimum=NO_TIME)] = timedelta(seconds=2)
    freshness: Annotated[timedelta | None, Limits(minimum=timedelta(seconds=1))] = None
    weight: Annotated[int, Limits(minimum=1, maximum=4)] = 1
    max_batch_bytes: Annotated[int, Limits(minimum=1)] = 32 * 1024 * 1024
    slot_memory_bytes: Annotated[int, Limits(minimum=MIN_SLOT_MEMORY_BYTES)] = 512 * 1024 * 1024
    until_caught_up: bool = True
    max_duration: Annotated[timedelta | None, Limits(above=NO_TIME)] = None
    max_idle_rounds: Annotated[int | None, Limits(minimum=1)] = None

    def check_group(self, group: str | None, field: str) -> None:
        """Check that a job with a weight shares its application with others.

        :param group: the group of sources whose application runs the job; None if it has one of its own.
        :param field: the name of the field that names it.
        :raises ConfigurationError: if it has a weight, and no group.
        """
        if self.weight != 1 and not group:
            raise ConfigurationError(
                f"field 'rounds.weight' is {self.weight}, but the source is in no group: its jobs have all slots of "
                f"their application; name the group in {field!r}, or leave the weight out"
            )


@dataclass(kw_only=True)
class LeaseSettings(Described):
    """How many leases of a source a job may hold, and how it gets them.

    :param max_leases: the maximum number of partitions the job holds, even if its fair share is larger; by default 64
        if the partitions end. (templated)
    :param balance_by: what jobs share in proportion to their slots: the `"count"` of leases, or the `"throughput"`
        recorded in each partition's progress. (templated)
    :param max_leases_to_steal: how many leases the job requests from others at a time; None for an eighth of its
        share, at least 4. (templated)
    :param handover_timeout: how long an owner may take to hand over a lease that another job requested. (templated)
    """

    max_leases: Annotated[int | None, Limits(minimum=1)] = None
    balance_by: Annotated[str, Limits(one_of=BALANCE_BY)] = BY_COUNT
    max_leases_to_steal: Annotated[int | None, Limits(minimum=1)] = None
    handover_timeout: Annotated[timedelta, Limits(above=NO_TIME)] = DEFAULT_HANDOVER_TIMEOUT


@dataclass(kw_only=True)
class AcknowledgmentSettings(Described):
    """Who acknowledges a batch, and how long that may take.

    :param by: `"job"`, once its sinks have the batch; `"downstream"`, a later task such as an `AcknowledgeOperator`; or
        a list of such handles. (templated)
    :param timeout: how long a batch may wait for an acknowledgment without progress before it is delivered again.
        (templated)
    :param max_pending_batches: how many batches of one partition may be landed and not acknowledged; a partition with
        more is not read further. (templated)
    """

    by: str | tuple[str, ...] = BY_JOB
    timeout: Annotated[timedelta, Limits(above=NO_TIME)] = timedelta(hours=1)
    max_pending_batches: Annotated[int, Limits(minimum=1)] = 16

    @property
    def handles(self) -> tuple[str, ...]:
        """The handles that later tasks release before a batch is delivered; empty if only the job acknowledges."""
        if isinstance(self.by, str):
            return () if self.by == BY_JOB else (self.by,)
        return self.by

    @override
    def check_together(self) -> None:
        if not self.by or (isinstance(self.by, str) and self.by not in (BY_JOB, DOWNSTREAM)):
            raise self.invalid("by", f"must be {BY_JOB!r}, {DOWNSTREAM!r} or a list of names")
        for n, handle in enumerate(self.handles):
            if not handle or not handle.isprintable() or len(handle) > MAX_NAME_CHARACTERS:
                raise self.invalid("by", f"must have names of 1 to {MAX_NAME_CHARACTERS} printable characters")
            if handle in self.handles[:n]:
                raise self.invalid("by", f"must name each handle once, and not {handle!r} twice")


@dataclass(kw_only=True)
class BadRecordSettings(Described):
    """What happens to records that cannot be parsed or transformed, and to rows that a sink refuses.

    :param dead_letter_path: a path or URI for bad records and their errors, which every worker reaches; without it, a
        bad record fails its batch. (templated)
    :param max_parse_exceptions: the maximum number of bad records in one run of the job; the batch of the next
        one fails. None sets no limit. (templated)
    :param max_saved_parse_exceptions: how many of the latest bad records the job's reports list, with the start of
        their payloads, up to 100; by default 5 without payloads. (templated)
    :param keeps_rejected: whether records that `RejectionSettings` reject go to `dead_letter_path` too. (templated)
    :param max_refused_share: the share of a batch's rows, up to 1, that a sink may refuse; they become dead letters. By
        default, one refused row fails its batch. (templated)
    """

    dead_letter_path: str | None = None
    max_parse_exceptions: Annotated[int | None, Limits(minimum=0)] = None
    max_saved_parse_exceptions: Annotated[int | None, Limits(minimum=0, maximum=MAX_SAVED_PARSE_EXCEPTIONS)] = None
    keeps_rejected: bool = False
    max_refused_share: Annotated[float | None, Limits(above=0, maximum=1)] = None

    @override
    def check_together(self) -> None:
        if self.dead_letter_path is not None and not self.dead_letter_path.strip():
            raise self.invalid("dead_letter_path", "must not be empty; leave it out")
        if self.keeps_rejected and self.dead_letter_path is None:
            raise self.invalid("keeps_rejected", "needs 'dead_letter_path', the path for rejected records")
        if self.max_refused_share is not None and self.dead_letter_path is None:
            raise self.invalid("max_refused_share", "needs 'dead_letter_path', the path for refused rows")


@dataclass(kw_only=True)
class RejectionSettings(Described):
    """Which records are late or early, and therefore left out.

    The bounds are recorded with each batch when it is landed. So every job that delivers it leaves the same records
    out, even a job with other bounds. A record whose event time is null is neither late nor early.

    :param event_time: the column of `schema` with the time of the event: a TIMESTAMP, a TIMESTAMP_NTZ in UTC, or a
        BIGINT of milliseconds since 1970. (templated)
    :param earliest: records before this instant (aware) are late; None for no such bound. (templated)
    :param latest: records after this instant (aware) are early; None for no such bound. (templated)
    """

    event_time: str | None = None
    earliest: datetime | None = None
    latest: datetime | None = None

    @override
    def check_together(self) -> None:
        bounds = [name for name in ("earliest", "latest") if getattr(self, name) is not None]
        if bounds and not self.event_time:
            raise FieldError(
                type(self).__name__,
                "event_time",
                f"is missing, but {bounds[0]!r} is given: name the column of 'schema' that decides what is late",
            )
        if self.event_time and not bounds:
            raise self.invalid("event_time", "has no bound: give 'earliest', 'latest' or both")
        if self.event_time and len(self.event_time) > MAX_NAME_CHARACTERS:
            raise self.invalid("event_time", f"must have at most {MAX_NAME_CHARACTERS} characters")
        if self.earliest is not None and self.latest is not None and self.earliest > self.latest:
            raise self.invalid(
                "earliest", f"must not be after 'latest', {format_instant(self.latest)}: every record would be rejected"
            )


def check_transform(owner: str, transform: object) -> None:
    """Check that a transform is named as `module:function`, unless it is a template or the result of another task.

    :param owner: how error messages name what has the field.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if callable(transform) or (isinstance(transform, str) and text_value(transform) and not is_template(transform)):
        check_function(f"{owner}: field 'transform'", transform)


def check_computed(computed: object) -> None:
    """Check the names and the expressions of computed columns, as far as that is possible without Spark.

    :param computed: the expressions by name; None for none.
    :raises ConfigurationError: naming the field, the column and the remedy.
    """
    if computed is None:
        return
    if not isinstance(computed, Mapping) or not computed:
        raise ConfigurationError(
            f"field 'computed' must be an object of columns and SQL expressions, such as {{page: lower(url)}}; got "
            f"{computed!r}"
        )
    for name, expression in computed.items():
        if not isinstance(expression, str) or not expression.strip():
            raise ConfigurationError(
                f"field 'computed': column {name!r} must have a SQL expression, such as 'lower(url)'; got "
                f"{expression!r}"
            )
        if not isinstance(name, str) or not name or name.lower().startswith(("_batch_id", "_coordination_")):
            raise ConfigurationError(
                f"field 'computed' names a column {name!r}, which cannot be computed; give it another name"
            )


def check_function(field: str, value: object) -> None:
    """Check that a value names a function as `module:function`.

    :param field: how error messages name the field.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if callable(value):
        name = getattr(value, "__name__", type(value).__name__)
        raise ConfigurationError(
            f"{field} is the function {name!r} itself, which cannot be passed to Spark; give its name as text, such as "
            f"'my_project.transforms:{name if name.isidentifier() else 'clean'}', and ship its module with 'py_files'"
        )
    module, _, function = value.partition(":") if isinstance(value, str) else ("", "", "")
    names = [*module.split("."), function]
    if not all(map(str.isidentifier, names)) or (len(names) > 2 and names[-2] == "py"):
        raise ConfigurationError(
            f"{field} must be of the form 'module:function', such as 'my_project.transforms:clean', with dots between "
            f"packages and without '.py'; got {value!r}"
        )
