"""What the commits of a table record about their batches: enough to rebuild the source's state if the store is lost.

A job delivers the batches of a partition in their order: a batch is delivered once those before it are in every sink.
So a partition is delivered up to the latest batch that all tables have. A later batch is in some tables and not in
others. It is still fixed: the next job delivers its landed file, and the tables that have the batch skip it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinds import kind_of
from airflow_provider_coordination.sources.landed import LandedBatch, LandedProgress
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, LeasedBatch
from airflow_provider_coordination.spark.landed_identity import batch_landed_in, token_of
from airflow_provider_coordination.spark.storage import file_size, files_below, join

CLOCKS_APART = timedelta(hours=1)
"""How far the clocks of a job and of another writer may differ."""
UNRECORDED = (
    "file", "file_bytes", "acknowledgment_set", "acknowledged", "redeliver", "shared_file",
)  # fmt: skip
"""What commits do not record of a batch: the state of its delivery, and its landed file, which is found by folder."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A commit that added batches.

    :param at: when it was made (aware).
    :param batches: the batches that it added.
    """

    at: datetime
    batches: tuple[LeasedBatch, ...]


@dataclass(frozen=True, kw_only=True)
class TableHistory:
    """The commits that a table still has.

    :param location: the table.
    :param commits: the commits that added batches, the earliest first.
    :param is_complete: whether no commit has expired.
    :param unknown: the batches of which only the ids are known.
    """

    location: str
    commits: tuple[Commit, ...]
    is_complete: bool
    unknown: tuple[str, ...] = ()


def may_be_older(attempt: Attempt, since: datetime | None) -> bool:
    """Return whether a batch may have been committed before the earliest commit that a table still has.

    :param since: the time of that commit; None if the table has all its commits.
    """
    landed_at = attempt.batch.landed_at
    return since is not None and (landed_at is None or landed_at <= since + CLOCKS_APART)


def unknown_batch(attempt: Attempt, table: str, since: datetime | None) -> DeliveryError:
    """Return the error for a batch of which nothing shows whether it is in a table."""
    until = "an unknown time" if since is None else f"{since:%Y-%m-%dT%H:%M:%SZ}"
    return DeliveryError(
        f"batch {attempt.batch_id}: {table} has commits since {until} and may have got the batch before; it is not "
        "delivered, since rows that were replaced or deleted would come back. Acknowledge the batch if the table has "
        "its data, or reset the partition to deliver it"
    )


def describe_batch(attempt: Attempt) -> dict[str, Any]:
    """Return what a commit records about a batch that it adds; a JSON object that `parse_batches` reads.

    Each commit has it, so it is short: defaults are left out.
    """
    described = write_settings(LeasedBatch(**{each.name: getattr(attempt, each.name) for each in fields(LeasedBatch)}))
    defaults = {each.name: each.default for each in fields(LandedBatch)}
    described["batch"] = {
        name: value for name, value in described["batch"].items() if name not in UNRECORDED and value != defaults[name]
    }
    return {name: value for name, value in described.items() if value not in (None, {})}


def parse_batches(described: Sequence[Mapping[str, Any]], what: str) -> tuple[LeasedBatch, ...]:
    """Return the batches that a commit added.

    :param described: what the commit records, see `describe_batch`.
    :param what: the commit, for error messages.
    :raises ConfigurationError: if it has another form: another version of this package wrote it.
    """
    return tuple(read_settings(LeasedBatch, what, each) for each in described)


FindLanded = Callable[[LeasedBatch], "LandedFile | None"]


@dataclass(frozen=True)
class LandedFile:
    """A landed file that still exists.

    :param uri: its URI.
    :param bytes: its size.
    """

    uri: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class RecoveredPartition:
    """One partition, rebuilt from the tables.

    :param partition_key: its key.
    :param progress: its progress; None if it cannot be rebuilt.
    :param problem: why it cannot be rebuilt exactly; empty if it can.
    :param fencing_token: the latest fencing token with which a table has one of its batches: tables refuse commits with
        an older token.
    """

    partition_key: str
    fencing_token: int = 0
    progress: LandedProgress | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """A source, rebuilt from the tables.

    :param partitions: its partitions.
    :param claims: the claimed names of each partition, by its key.
    :param state: the state of its supplier; empty for none.
    :param warnings: what could not be determined, one sentence each.
    """

    partitions: tuple[RecoveredPartition, ...]
    claims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def landed_file_finder(root: str | None, access: Access = DEFAULT_ACCESS) -> FindLanded:
    """Return a function that finds the landed file of a batch.

    :param root: the landing path; None if it is not known.
    """

    def find(batch: LeasedBatch) -> LandedFile | None:
        files = [] if root is None else files_below(join(root, batch.folder), access)
        for uri in files:
            if token_of(uri) is not None and batch_landed_in(uri, access) == batch.batch_id:
                return LandedFile(uri, file_size(uri, access) or 0)
        return None

    return find


def recovery_of(source: str, tables: Sequence[TableHistory], find: FindLanded) -> Recovery:
    """Return a source, rebuilt from its tables.

    :param source: its identifier.
    :param tables: all tables to which it is delivered.
    :param find: finds the landed files of batches that are not in all tables.
    :raises ConfigurationError: if a table has no batch of the source.
    """
    known = [_Table.of(table, source) for table in tables]
    keys = sorted({key for table in known for key in table.partitions})
    results = {key: _recovered(key, known, find) for key in keys}
    progresses = {key: each.progress for key, each in results.items() if each.progress is not None}
    partitions: list[RecoveredPartition] = [each for each in results.values() if each.progress is None]
    claims: dict[str, Sequence[str]] = {}
    state: Mapping[str, Any] = {}
    for key, progress in progresses.items():
        kind = kind_of(progress.to_mapping())
        assert kind is not None  # the progress names its kind
        if names := kind.claims_of(progress):
            claims[key] = names
        for name, each in kind.rebuilt(key, progress, progresses).items():
            known_of = results[key] if name == key else RecoveredPartition(partition_key=name)
            partitions.append(replace(known_of, progress=each))
        if not state:
            own = {name: each for name, each in progresses.items() if each.kind == progress.kind}
            found = (table.partitions.get(name, {}) for table in known for name in own)
            state = kind.rebuilt_state(own, {each.batch.start for batches in found for each in batches.values()})
    return Recovery(
        partitions=tuple(sorted(partitions, key=lambda each: each.partition_key)),
        claims=claims,
        state=state,
        warnings=tuple(warning for table in tables for warning in _warnings(table)),
    )


@dataclass(frozen=True)
class _Table:
    """The batches of a source in one table.

    :param location: the table.
    :param began: when the source was first delivered to the table, as far as its commits show (aware).
    :param partitions: the batches in the table, by partition and ordinal; for a replaced batch, its last commit.
    :param brought: when each batch was first committed (aware).
    """

    location: str
    began: datetime
    partitions: Mapping[str, Mapping[int, LeasedBatch]]
    brought: Mapping[str, datetime]

    @classmethod
    def of(cls, history: TableHistory, source: str) -> _Table:
        partitions: dict[str, dict[int, LeasedBatch]] = {}
        brought: dict[str, datetime] = {}
        sources: set[str] = set()
        for commit in history.commits:
            for batch in commit.batches:
                sources.add(batch.source)
                if batch.source == source:
                    partitions.setdefault(batch.partition_key, {})[batch.ordinal] = batch
                    brought.setdefault(batch.batch_id, commit.at)
        if not partitions:
            found = ", ".join(map(repr, sorted(sources))) or "no source"
            raise ConfigurationError(
                f"table {history.location} has no batch of source {source!r}; it has batches of {found}; give a table "
                "that this source is delivered to"
            )
        return cls(history.location, min(brought.values()), partitions, brought)

    def latest(self, key: str) -> int:
        """Return the ordinal of a partition's latest batch; 0 if there is none."""
        return max(self.partitions.get(key, {0: None}))


def _recovered(key: str, tables: Sequence[_Table], find: FindLanded) -> RecoveredPartition:
    batches = {n: batch for table in tables for n, batch in table.partitions.get(key, {}).items()}
    latest = batches[max(batches)]
    if not latest.progress:
        return RecoveredPartition(partition_key=key, problem="its commits do not record its progress")
    here = [table for table in tables if key in table.partitions]
    absent = [table for table in tables if key not in table.partitions]
    first = min(table.brought[batch.batch_id] for table in here for batch in table.partitions[key].values())
    if len(batches) > 1:  # a table that existed then would have the first batch
        absent = []
    done = min(table.latest(key) for table in here)
    landed: list[LandedBatch] = []
    problem = ""
    for n in sorted(batches):
        lacking = [table for table in (*here, *absent) if table.latest(key) < n]
        if not lacking:
            continue
        file = find(batches[n])
        if file is not None:
            landed.append(_as_landed(batches[n], file))
        elif all(table in absent and table.began > first for table in lacking):
            done = max(done, n)  # these tables were added later
        else:
            problem = (
                f"batch {batches[n].batch_id} is not in table {lacking[0].location}, and its landed file is gone: "
                "restore the file from a backup of the landing path, or add the batch to the table manually"
            )
            done = max(done, n)
    before = [batch for n, batch in batches.items() if n <= done and not any(b.ordinal == n for b in landed)]
    checkpoint = landed[0].start if landed else latest.batch.end
    until = max((b.batch.read_until for b in before if b.batch.read_until is not None), default=None)
    try:
        progress = _progress(latest, checkpoint, landed, until)
    except SourceError as error:
        return RecoveredPartition(partition_key=key, problem=str(error))
    token = max(batch.fencing_token for table in here for batch in table.partitions[key].values())
    return RecoveredPartition(partition_key=key, fencing_token=token, progress=progress, problem=problem)


def _progress(
    latest: LeasedBatch, checkpoint: str, landed: Sequence[LandedBatch], until: datetime | None
) -> LandedProgress:
    kind = kind_of(latest.progress)
    if kind is None:
        raise SourceError("its commits do not record its kind")
    stored = {
        **latest.progress,
        "checkpoint": checkpoint,
        "landed": [write_settings(batch) for batch in landed],
        "is_ended": latest.batch.is_last,
        "ordinal": latest.ordinal,
    }
    return kind.progress(stored).rebuilt(until)


def _as_landed(found: LeasedBatch, file: LandedFile) -> LandedBatch:
    token = token_of(file.uri) or found.fencing_token
    return replace(found.batch, file=file.uri, file_bytes=file.bytes, fencing_token=token)


def _warnings(table: TableHistory) -> list[str]:
    warnings = []
    if not table.is_complete:
        since = f"{table.commits[0].at:%Y-%m-%dT%H:%M:%SZ}" if table.commits else "now"
        warnings.append(
            f"the commits of table {table.location} before {since} have expired, so partitions whose last batch is "
            f"older are not known: their records are read again, unless the DAG starts at {since}"
        )
    if table.unknown:
        warnings.append(
            f"only the ids of {len(table.unknown)} batches of table {table.location} are known, such as "
            f"{table.unknown[0]}: their records may be read again"
        )
    return warnings
