"""What the routes answer, and what they are told: the shapes of the JSON.

Instants are ISO 8601 in UTC, durations numbers of seconds.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    field_validator,
)

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import ChangeKind, check_partition_key
from airflow_provider_coordination.sources.targets import EARLIEST

MAX_REASON_CHARACTERS = 500
MAX_PARTITIONS_AT_ONCE = 500

NO_NUL = r"^[^\x00]*$"
"""What every store takes."""


def _usable_key(text: str) -> str:
    try:
        check_partition_key(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text


Key = Annotated[str, AfterValidator(_usable_key)]
"""A key that every store takes, as they are of partitions and of other items."""

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_REASON_CHARACTERS)]


class Owner(BaseModel):
    """Who holds a lease. All but `name` is null where the name is of another form than a task's."""

    name: str
    host: str | None = None
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None


class ConnectionRow(BaseModel):
    """A connection of type `coordination`; `problem` says why it cannot be used."""

    connection_id: str
    may_change: bool
    problem: str | None = None


class Connections(BaseModel):
    """The connections that somebody may see."""

    connections: list[ConnectionRow]


class OldestLease(BaseModel):
    """The lease that was acquired first of those that are held, as far as they say since when.

    `held_for` is null where none says so. Where `is_longest` is false, another one may be held for longer: it does not
    say since when, or there are more than were looked at.
    """

    partition_key: str
    owner: Owner
    held_for: float | None
    is_longest: bool


class SuspensionFacts(BaseModel):
    """That a source is suspended."""

    since: datetime
    by: str
    reason: str


class FailingPartition(BaseModel):
    """A partition that fails."""

    partition_key: str
    attempts: int
    last_error: str | None


class Alarm(BaseModel):
    """Something that a person should look at; `about` is what it is about, by which a program tells alarms apart."""

    level: Literal["error", "warning"]
    about: Literal["parked", "overdue", "suspended", "expired", "waiting", "lag", "failing", "supervisor"]
    text: str


class SourceCard(BaseModel):
    """How a source stands.

    `completed` is how many partitions were completed in each five minutes of the last hour, the oldest first; null
    where that is not known. `is_complete` says whether every unfinished partition was looked at for the figures.
    `pages` are those that it has beside those of every source: of its kind, and of its supervisor.
    """

    connection_id: str
    source: str
    kind: str | None
    pages: list[str]
    counts: dict[str, int]
    parked: int
    failing: int
    expired_leases: int
    oldest_lease: OldestLease | None
    oldest_waiting: float | None
    lag: float | None
    throughput: float | None
    workers: int
    pending_sets: int
    next_set_expires_at: datetime | None
    suspended: SuspensionFacts | None
    errors: list[FailingPartition]
    completed: list[int | None]
    is_complete: bool
    alarms: list[Alarm]


class SourceCards(BaseModel):
    """How the sources of a connection stand, by name."""

    as_of: datetime
    sources: list[SourceCard]


class PartitionRow(BaseModel):
    """A partition at a glance. `since` is its place in the queue of its status: `priority`.

    `has_positions` says whether it can be read from elsewhere than its beginning.
    """

    partition_key: str
    status: str
    state: str
    owner: Owner | None
    held_since: datetime | None
    leased_until: datetime | None
    reopen_at: datetime | None
    since: datetime
    version: int
    attempts: int
    closed_count: int
    last_error: str | None
    kind: str | None
    has_positions: bool
    position: str | None
    lag: float | None
    items_done: int | None
    items: int | None
    landed_batches: int
    landed_records: int
    is_readable: bool


class PartitionPage(BaseModel):
    """Some partitions; `next` is what to give as `after` for those behind them, null where there are none."""

    as_of: datetime
    partitions: list[PartitionRow]
    next: str | None


class LandedBatchFacts(BaseModel):
    """A batch that is written and not delivered."""

    batch_id: str
    start: str
    end: str
    records: int
    file: str
    acknowledgment_set: str | None
    state: str


class FailedItemFacts(BaseModel):
    """An item that could not be read; its place in the partition's items, from 0."""

    item: int | None
    reason: str


class TransitionFacts(BaseModel):
    """A change of a partition's status or owner; `status` is null where it was deleted."""

    at: datetime
    status: str | None
    owner: Owner | None
    until: datetime | None
    former_status: str
    former_owner: Owner | None
    former_until: datetime | None
    kind: ChangeKind
    reason: str
    by: str | None


class PartitionDetail(PartitionRow):
    """Everything about a partition. `history` says whether any is kept, `details` what its kind of source has alone."""

    progress: dict[str, Any]
    unreadable_progress: str | None
    throughput: float | None
    landed: list[LandedBatchFacts]
    acknowledgment_sets: list[dict[str, Any]]
    gaps: list[str]
    failed_items: list[FailedItemFacts]
    transitions: list[TransitionFacts]
    history: bool
    details: dict[str, Any]


class HoldingFacts(BaseModel):
    """A time during which one owner held a partition; `began_at` is null where that is not kept any more."""

    owner: Owner
    began_at: datetime | None
    begin: str
    ended_at: datetime | None
    end: str
    reason: str
    by: str | None


class PartitionLine(BaseModel):
    """Who held a partition, the first first."""

    partition_key: str
    holdings: list[HoldingFacts]


class Timeline(BaseModel):
    """Who held which partition when; `complete` says whether that is all of it."""

    as_of: datetime
    since: datetime
    until: datetime
    history: bool
    complete: bool
    partitions: list[PartitionLine]


class JobFacts(BaseModel):
    """A Spark job that is followed through the store; `ui_url` leads on to its Spark UI while it runs."""

    state: str
    application_id: str | None
    ui_url: str | None
    stop: str | None


class WorkerRow(BaseModel):
    """A worker: who has registered, or holds a lease without having done so (`registered_until` is null then)."""

    owner: Owner
    registered_until: datetime | None
    started_at: datetime | None
    max_leases: int | None
    leases: int
    is_live: bool
    job: JobFacts | None


class WorkerList(BaseModel):
    """The workers of a source; `complete` says whether every lease was counted."""

    as_of: datetime
    workers: list[WorkerRow]
    complete: bool


class RunPartition(PartitionRow):
    """A partition that a run holds, or held."""

    connection_id: str
    source: str
    is_held_now: bool


class RunPartitions(BaseModel):
    """What a run holds, or held; `unreachable` are the connections whose store did not answer."""

    as_of: datetime
    partitions: list[RunPartition]
    complete: bool
    unreachable: list[str]


class PartitionSeen(BaseModel):
    """A partition as a person saw it."""

    model_config = ConfigDict(extra="forbid")

    key: Key
    version: StrictInt


class ActionBody(BaseModel):
    """What is to be done to partitions.

    :param partitions: which, each as it was seen.
    :param reason: why.
    :param to: for `reset`, where they are read from: `earliest`, `latest`, an instant or a sequence number.
    """

    model_config = ConfigDict(extra="forbid")

    partitions: Annotated[list[PartitionSeen], Field(min_length=1, max_length=MAX_PARTITIONS_AT_ONCE)]
    reason: Reason
    to: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None

    @field_validator("partitions")
    @classmethod
    def _each_once(cls, partitions: list[PartitionSeen]) -> list[PartitionSeen]:
        if len({seen.key for seen in partitions}) < len(partitions):
            raise ValueError("a key is named twice; name each partition once")
        return partitions


class ReasonBody(BaseModel):
    """Why something is done."""

    model_config = ConfigDict(extra="forbid")

    reason: Reason


class SuspendBody(ReasonBody):
    """Why a source is suspended; `new_source` says that it may be one of which the store holds nothing yet."""

    new_source: StrictBool = False


class ResumeBody(ReasonBody):
    """Why a source goes on; `since` is that of the suspension as it was seen: another one stays."""

    since: AwareDatetime | None = None


class ActionResult(BaseModel):
    """What became of one partition; `stale` is one that has changed since it was seen: nothing was done to it."""

    key: str
    outcome: Literal["done", "stale", "refused", "missing"]
    detail: str
    partition: PartitionRow | None


class ActionResults(BaseModel):
    """What became of each partition, in the order in which they were named."""

    results: list[ActionResult]


class TerminationFacts(BaseModel):
    """That a supervisor is terminated."""

    at: datetime
    because: str


class TaskCountChangeFacts(BaseModel):
    """A change of the number of jobs, or a refusal: `after` is `before` then."""

    at: datetime
    before: int
    after: int
    reason: str


class TaskCountFacts(BaseModel):
    """How many jobs a supervisor wants, and why; `min` and `max` are those of its scaling, null without it."""

    wanted: int | None
    configured: int | None
    min: int | None
    max: int | None
    reason: str
    changes: list[TaskCountChangeFacts]


class SupervisedJobFacts(BaseModel):
    """A job of a supervisor that has not ended."""

    owner: str
    state: Literal["SUBMITTED", "STARTING", "RUNNING", "ENDING", "VANISHED"]
    spec_version: int | None
    planned_at: datetime | None
    started_at: datetime | None
    remaining_seconds: int | None
    application_id: str | None
    partitions: int
    lag_ms: int | None
    stop_reason: str | None
    is_outdated: bool


class LagPointFacts(BaseModel):
    """The lag of a source at an instant, in milliseconds, and what all jobs had counted by then."""

    at: datetime
    oldest_ms: int | None
    sum_ms: int
    counted: dict[str, int]


class LagFacts(BaseModel):
    """The lag of a source and its unfinished partitions, in milliseconds; null where it is unknown."""

    at: datetime | None
    oldest_ms: int | None
    sum_ms: int
    average_ms: int | None
    unknown: int
    partitions: dict[str, int | None]


class SupervisorErrorFacts(BaseModel):
    """Something that went wrong; `partition` and `owner` say where, if that is known."""

    at: datetime
    error_class: str
    message: str
    partition: str | None
    owner: str | None
    is_stream_error: bool


class JobStats(BaseModel):
    """What a job counted since its start, and its averages a second, by window."""

    totals: dict[str, int]
    rates: dict[str, dict[str, float]]


class SupervisorStats(JobStats):
    """The same of all jobs, of `totals` those that have ended too; `jobs` by owner."""

    jobs: dict[str, JobStats]


class SupervisorStatus(BaseModel):
    """How a supervisor stands."""

    source: str
    dag_id: str
    dag_is_paused: bool | None
    kind: str | None
    generated_at: datetime
    state: str
    detailed_state: str
    healthy: bool
    suspended: SuspensionFacts | None
    terminated: TerminationFacts | None
    spec_version: int
    spec_by: str
    spec_at: datetime | None
    started_at: datetime | None
    looked_at: datetime | None
    is_supervised: bool
    supervised_until: datetime | None
    task_count: TaskCountFacts
    partitions: dict[str, int]
    jobs: list[SupervisedJobFacts]
    lag: LagFacts
    lag_series: list[LagPointFacts]
    stats: SupervisorStats
    errors: list[SupervisorErrorFacts]
    needs_turn: bool


class SupervisorList(BaseModel):
    """How the supervisors of a connection stand, by source; `partitions` of their `lag` are left out."""

    as_of: datetime
    supervisors: list[SupervisorStatus]


class SpecFacts(BaseModel):
    """A version of a spec; `spec` is null in a termination. Secrets are hidden."""

    version: int
    at: datetime
    by: str
    reason: str
    is_termination: bool
    is_from_file: bool
    change: Literal["NONE", "COSMETIC", "SUPERVISION", "JOBS"] | None
    spec: dict[str, Any] | None


class SpecDetail(SpecFacts):
    """The same with every default, as `effective`, or why it cannot be read, as `problem`."""

    effective: dict[str, Any] | None
    problem: str


class SpecHistory(BaseModel):
    """The latest versions of a spec, the latest first."""

    source: str
    versions: list[SpecFacts]


class SupervisorHealth(BaseModel):
    """Whether a supervisor is healthy."""

    source: str
    healthy: bool
    state: str
    detailed_state: str


class SourceStats(SupervisorStats):
    """What the jobs of a supervisor counted."""

    source: str
    generated_at: datetime


class ParseErrors(BaseModel):
    """The bad records that jobs reported last, the latest first; what is known of each differs."""

    source: str
    errors: list[dict[str, Any]]


class SubmitBody(ReasonBody):
    """A spec, and why it is submitted.

    `replacing` is the version that it was made from: another one stays. The source is asked first unless `connect` is
    false.
    """

    spec: dict[str, Any]
    replacing: StrictInt | None = None
    connect: StrictBool = True


class ResetAllBody(ReasonBody):
    """Where every source is read from, and why."""

    to: Annotated[str, StringConstraints(min_length=1, max_length=200)] = EARLIEST


class ResetBody(ResetAllBody):
    """Where a source is read from, or the partitions in `positions`, each from its own; and why."""

    positions: Annotated[
        dict[str, Annotated[str, StringConstraints(min_length=1, max_length=200)]] | None,
        Field(min_length=1, max_length=MAX_PARTITIONS_AT_ONCE),
    ] = None


class SubmissionFacts(BaseModel):
    """What became of a spec: the version that rules, and what follows from it."""

    version: int
    change: Literal["NONE", "COSMETIC", "SUPERVISION", "JOBS"]
    consequence: str
    warnings: list[str]
    supervisor: SupervisorStatus


class ResetOutcomeFacts(BaseModel):
    """What became of a partition; `error` says why nothing was done, and is empty if it was."""

    partition_key: str
    action: str
    error: str


class ResetFacts(BaseModel):
    """What became of a reset; `left` are the partitions that stay as they are, and why."""

    outcomes: list[ResetOutcomeFacts]
    left: dict[str, str]
    warnings: list[str]
    supervisor: SupervisorStatus


class VerbOutcomeFacts(BaseModel):
    """What a verb for all came to for one supervisor; `detail` says why nothing was done.

    `has_failed`: it makes sense as the supervisor stands, and may be tried again.
    """

    source: str
    is_done: bool
    detail: str
    has_failed: bool


class VerbOutcomes(BaseModel):
    """What a verb for all supervisors came to, by source."""

    results: list[VerbOutcomeFacts]
