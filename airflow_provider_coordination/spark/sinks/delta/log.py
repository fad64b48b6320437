"""The log of a Delta table, as a job reads and writes it: which batches are in, and the commit that adds batches.

Each partition has two application transactions in the log: the ordinal of its latest batch, and the fencing token of
that batch. They show at once that a later batch is not in. For other batches, the commits in the log name them, as far
as no RESTORE has undone them. If commits have expired, the column `_batch_id` is searched. A batch that is older than
the log and has no rows may be in or not: it is refused.

A commit succeeds only on the snapshot that was read. If another writer commits first, the job reads the table again.
A third transaction has the number of the table's tombstones, which a commit changes with the rows; see `tombstones`.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from airflow_provider_coordination.aws import AwsSettings, aws_session
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import Access, is_s3
from airflow_provider_coordination.spark.delivered_batches import (
    Commit,
    TableHistory,
    describe_batch,
    may_be_older,
    parse_batches,
    unknown_batch,
)
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.merging import Merging

log = logging.getLogger(__name__)

METADATA = "coordination"
"""The key of a commit's metadata that names its batches."""
TOMBSTONES = "coordination/tombstones"
"""The application transaction that has the number of the table's tombstones; partitions have a longer name."""
LATEST = (20, 1000, None)
"""The number of latest commits that are searched for a batch, one after the other: 20, 1,000, all that the log has."""
RESTORE_MARGIN_MS = 60_000
_DELETES = "_coordination_deletes"
CATCH_UP = 1000
"""The maximum number of new commits from which known transactions are brought up to date."""


class TableLog:
    """The log of one table.

    :param uri: the folder of the table.
    :param options: returns the storage options of the library; holds secrets.
    """

    def __init__(self, uri: str, options: Callable[[], dict[str, str]]) -> None:
        self.uri = uri
        self._options = options
        self._id: str | None = None
        self._lock = threading.Lock()
        self._known_version = 0  # the version up to which transactions are known
        self._versions: dict[str, int | None] = {}  # versions of transactions, by name
        self._restores: set[int] = set()  # versions that are reported

    def open(self) -> DeltaTable | None:
        """Return the current table; None if it does not exist yet.

        :raises DeliveryError: if the table was opened before, and is now gone or replaced by another table.
        """
        try:
            table = DeltaTable(self.uri, storage_options=self._options())
        except TableNotFoundError:
            table = None
        table_id = None if table is None else str(table.metadata().id)
        if self._id is None:
            self._id = table_id
        elif table_id != self._id:
            raise DeliveryError(
                f"table {self.uri} was {'dropped' if table_id is None else 'replaced'} after the job began; its "
                "batches wait. Restore it, or start the job again, which uses the table that it finds, or creates a "
                "missing one"
            )
        return table

    def create(self, schema: Schema, partition_by: Sequence[str]) -> None:
        """Create the table without rows, unless another process creates it at the same time."""
        try:
            DeltaTable.create(
                self.uri,
                schema,
                mode="error",
                partition_by=list(partition_by),
                storage_options=self._options(),
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except DeltaError:
            if not DeltaTable.is_deltatable(self.uri, self._options()):
                raise

    def committed(self, table: DeltaTable, attempts: Sequence[Attempt]) -> set[str]:
        """Return the ids of the batches that are in the table."""
        last = self._transactions(table, map(_ordinal, _folders(attempts)))
        if any(known is not None for known in last.values()) and BATCH_ID not in _names(table):
            raise DeliveryError(
                f"table {self.uri} has lost its column {BATCH_ID!r}, by which its batches are found; restore the table "
                "to a version that has it; the batches wait until then"
            )
        return self._committed(table, _not_after(last, attempts))

    def report_restores(self, table: DeltaTable, attempts: Sequence[Attempt]) -> None:
        """Report each RESTORE since the commits that added some batches, which are delivered again in any case."""
        last = self._transactions(table, map(_ordinal, _folders(attempts)))
        self._named(table, {attempt.batch_id for attempt in _not_after(last, attempts)})

    def _committed(self, table: DeltaTable, attempts: Sequence[Attempt]) -> set[str]:
        """Return which of some batches are in a table, by the commits that name them.

        :raises DeliveryError: naming a batch of which the log cannot show whether it is in.
        """
        wanted = {attempt.batch_id for attempt in attempts}
        committed, since = self._named(table, wanted)
        committed |= _batches_with_rows(table, wanted - committed)
        for attempt in attempts:
            if attempt.batch_id not in committed and may_be_older(attempt, since):
                raise unknown_batch(attempt, f"table {self.uri}", since)
        return committed

    def committed_under(self, table: DeltaTable, wanted: set[str]) -> dict[str, int]:
        """Return the fencing tokens of the leases under which the latest commits added some batches, by batch id."""
        tokens: dict[str, int] = {}
        for commits in LATEST:
            for entry in self.in_effect(table.history(commits)):
                for added in batches_of(entry):
                    if (batch_id := added["batch"]["batch_id"]) in wanted:
                        tokens.setdefault(batch_id, added["fencing_token"])
            if tokens.keys() == wanted:
                break
        return tokens

    def _named(self, table: DeltaTable, wanted: set[str]) -> tuple[set[str], datetime | None]:
        """Return which of some batches the commits in effect name, and the time of the earliest commit in the log."""
        named: set[str] = set()
        since: datetime | None = None
        for limit in LATEST:
            if named == wanted:
                break
            entries = table.history(limit)
            added = [each["batch"] for entry in self.in_effect(entries) for each in batches_of(entry)]
            named = wanted & {batch["batch_id"] for batch in added}
            since = reaches_back_to(entries)
        return named, since

    def in_effect(self, entries: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the commits that no RESTORE has undone, from the latest; report each RESTORE once."""
        until: int | None = None
        for entry in entries:
            if until is not None and entry["version"] > until:
                continue
            yield entry
            if entry.get("operation") == "RESTORE":
                until = _restored_version(entry, entries)
                if entry["version"] not in self._restores:
                    self._restores.add(entry["version"])
                    log.error(
                        "table %s: version %d is a RESTORE of an earlier one: batches that it undid are delivered "
                        "again if they are not acknowledged; to deliver acknowledged ones, reset the source",
                        self.uri, entry["version"],
                    )  # fmt: skip

    def has_rows(self, table: DeltaTable, attempts: Sequence[Attempt]) -> bool:
        """Return whether the table has rows of any of the batches."""
        return bool(_batches_with_rows(table, {attempt.batch_id for attempt in attempts}))

    def check_no_later_lease(self, table: DeltaTable, attempts: Sequence[Attempt]) -> None:
        """Check that no partition of the batches was delivered under a later lease.

        :raises DeliveryError: naming the first such batch.
        """
        later = self._transactions(table, map(_token, _folders(attempts)))
        for attempt in attempts:
            token = later[_token(attempt.folder)]
            if token is not None and token > attempt.fencing_token:
                raise DeliveryError(
                    f"batch {attempt.batch_id}: table {self.uri} has batches of partition {attempt.partition_key!r} "
                    f"under a later lease, of token {token}; this one has {attempt.fencing_token}"
                )

    def tombstones(self, table: DeltaTable) -> int:
        """Return the number of the table's tombstones; 0 if it has none."""
        return self._transactions(table, [TOMBSTONES])[TOMBSTONES] or 0

    def properties(
        self, table: DeltaTable, attempts: Sequence[Attempt], sink: str, tombstones: int | None = None
    ) -> CommitProperties:
        """Return the properties of a commit: the transactions of the partitions, and the batches that it adds.

        :param tombstones: the new number of the table's tombstones; None if the commit does not change it.
        """
        latest: dict[str, int] = {}
        known = self._transactions(table, map(_ordinal, _folders(attempts)))
        for attempt in attempts:
            ordinal, token = _ordinal(attempt.folder), _token(attempt.folder)
            latest[ordinal] = max(latest.get(ordinal, 0), known[ordinal] or 0, attempt.ordinal)
            latest[token] = max(latest.get(token, 0), attempt.fencing_token)
        brought: dict[str, Any] = {"sink": sink, "batches": [describe_batch(attempt) for attempt in attempts]}
        if tombstones is not None:
            latest[TOMBSTONES] = brought["tombstones"] = tombstones
        transactions = [Transaction(name, version) for name, version in latest.items()]
        return CommitProperties(
            custom_metadata={METADATA: json.dumps(brought)}, max_commit_retries=0, app_transactions=transactions
        )

    def _transactions(self, table: DeltaTable, names: Iterable[str]) -> dict[str, int | None]:
        """Return the versions of application transactions.

        The library reads the log for each transaction. So each one is read once, and later values come from the
        commits.
        """
        with self._lock:
            self._catch_up(table)
            for name in (wanted := list(names)):
                if name not in self._versions:
                    self._versions[name] = table.transaction_version(name)
            return {name: self._versions[name] for name in wanted}

    def _catch_up(self, table: DeltaTable) -> None:
        """Bring the known versions up to a version of the table."""
        new, self._known_version = table.version() - self._known_version, table.version()
        if not self._versions or not new:
            return
        commits = table.history(new) if 0 < new <= CATCH_UP else []
        if len(commits) != new:  # some commits have expired
            self._versions.clear()
        for commit in reversed(commits):
            if TOMBSTONES in self._versions and (number := _described(commit).get("tombstones")) is not None:
                self._versions[TOMBSTONES] = number
            for batch in batches_of(commit):
                for name, version in (
                    (_ordinal(batch["folder"]), batch["batch"]["ordinal"]),
                    (_token(batch["folder"]), batch["fencing_token"]),
                ):
                    if name in self._versions:
                        self._versions[name] = max(self._versions[name] or 0, version)


def history(table: DeltaTable, location: str) -> TableHistory:
    """Return the batches that the commits of a table added."""
    entries = sorted(table.history(), key=lambda entry: entry["version"])
    commits = tuple(
        Commit(
            at=datetime.fromtimestamp(entry["timestamp"] / 1000, UTC),
            batches=parse_batches(batches, f"version {entry['version']} of table {location}"),
        )
        for entry in entries
        if (batches := batches_of(entry))
    )
    return TableHistory(location=location, commits=commits, is_complete=bool(entries) and entries[0]["version"] == 0)


def change_files(table: DeltaTable, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties) -> None:
    """Add files to the opened version of a table, and remove files from it.

    :raises CommitFailedError: if the table has changed since.
    """
    table.create_write_transaction(
        list(actions),
        "append",
        table.schema(),
        partition_by=table.metadata().partition_columns,
        commit_properties=properties,
    )


def replace(
    table: DeltaTable, rows: pa.RecordBatchReader, batch_ids: Collection[str], properties: CommitProperties
) -> None:
    """Replace all rows of some batches in the opened version of a table.

    Files that also hold other rows are rewritten without the rows of the batches.

    :raises CommitFailedError: if the table has changed since.
    """
    write_deltalake(table, rows, mode="overwrite", predicate=_batch_predicate(batch_ids), commit_properties=properties)


def merge(
    table: DeltaTable, rows: pa.Table, how: Merging, rejected: Collection[str], properties: CommitProperties
) -> None:
    """Merge rows into the opened version of a table by the library's `MERGE`, for a table that is not `is_plain`.

    :param rows: rows, each key once.
    :param rejected: batches whose other rows in the table are deleted, and whose order does not count.
    :raises CommitFailedError: if the table has changed since.
    """
    source = pa.table([*rows.columns, how.deletes(rows)], names=[*rows.column_names, _DELETES])
    same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in how.on)
    merger = table.merge(
        source, same, source_alias="s", target_alias="t", streamed_exec=False, commit_properties=properties
    )
    wins = _wins(how.order_by, rejected)
    merger = (
        merger.when_matched_update_all(predicate=f"NOT s.{_DELETES} AND {wins}", except_cols=[_DELETES])
        .when_matched_delete(predicate=f"s.{_DELETES} AND {wins}")
        .when_not_matched_insert_all(predicate=f"NOT s.{_DELETES}", except_cols=[_DELETES])
    )
    if rejected:
        merger = merger.when_not_matched_by_source_delete(predicate=f"t.{_batch_predicate(rejected)}")
    done = merger.execute()
    if not done["num_target_files_added"] and not done["num_target_files_removed"]:  # the library made no commit
        change_files(table, [], properties)


def _wins(order_by: str | None, rejected: Collection[str]) -> str:
    """Return the predicate by which a row of the source wins against the row of the table that has its key."""
    if order_by is None:
        return "TRUE"
    order = _quoted(order_by)
    wins = [f"t.{order} IS NULL", f"s.{order} >= t.{order}"]
    return f"({' OR '.join([*wins, *([f't.{_batch_predicate(rejected)}'] if rejected else [])])})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _restored_version(entry: dict[str, Any], entries: Sequence[dict[str, Any]]) -> int:
    """Return a version that a RESTORE kept, and of which it kept no later one or few of them.

    If it names an instant, the writer may have compared it with other times than those in the log. What it kept of the
    last minute is known by its rows.
    """
    parameters = entry.get("operationParameters") or {}
    if (version := parameters.get("version")) is not None:
        return int(version)
    at = str(parameters.get("datetime") or parameters.get("timestamp"))
    instant = int(at) if at.isdigit() else int(datetime.fromisoformat(at).timestamp() * 1000)
    return max((each["version"] for each in entries if each["timestamp"] <= instant - RESTORE_MARGIN_MS), default=-1)


def reaches_back_to(entries: Sequence[dict[str, Any]]) -> datetime | None:
    """Return the time of the earliest commit in the log; None if that is the first one of the table."""
    if not entries or entries[-1]["version"] == 0:
        return None
    return datetime.fromtimestamp(entries[-1]["timestamp"] / 1000, UTC)


def _batches_with_rows(table: DeltaTable, batch_ids: set[str]) -> set[str]:
    if not batch_ids or BATCH_ID not in _names(table):
        return set()
    query = f"SELECT DISTINCT {BATCH_ID} FROM target WHERE {_batch_predicate(batch_ids)}"
    rows = pa.table(QueryBuilder().register("target", table).execute(query).read_all())
    return set(rows[BATCH_ID].to_pylist())


def _names(table: DeltaTable) -> set[str]:
    return {field.name for field in table.schema().fields}


def _batch_predicate(batch_ids: Iterable[str]) -> str:
    texts = ", ".join("'" + name.replace("'", "''") + "'" for name in sorted(batch_ids))
    return f"{BATCH_ID} IN ({texts})"


def batches_of(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the batches that a commit of a job added; none if another writer made the commit."""
    batches = _described(entry).get("batches")
    return batches if isinstance(batches, list) else []


def _described(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what a commit of a job says of itself; nothing if another writer made the commit."""
    try:
        described = json.loads(entry[METADATA])
    except (KeyError, TypeError, ValueError):
        return {}
    return described if isinstance(described, dict) else {}


def _not_after(last: Mapping[str, int | None], attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the batches that are not later than the latest one of their partition in the table.

    :param last: the ordinals of the latest batches, by the name of their transaction.
    """
    return [a for a in attempts if (known := last[_ordinal(a.folder)]) is not None and a.ordinal <= known]


def _folders(attempts: Sequence[Attempt]) -> list[str]:
    return sorted({attempt.folder for attempt in attempts})


def _ordinal(folder: str) -> str:
    """Return the name of the application transaction that holds the ordinal of a partition's latest batch."""
    return f"coordination/{folder}"


def _token(folder: str) -> str:
    """Return the name of the application transaction that holds the fencing token of that batch."""
    return f"coordination/{folder}/fencing_token"


def storage_options(uri: str, access: Access) -> Callable[[], dict[str, str]]:
    """Return a function that makes the options each time a table is opened, since credentials may expire.

    :param uri: the folder of the table.
    :param access: how to reach S3.
    :raises ConfigurationError: if there are no credentials for S3.
    """
    if not is_s3(uri):
        return dict
    aws = access.of(uri) or AwsSettings()
    session = aws_session(aws)
    credentials = session.get_credentials()
    if credentials is None:
        raise ConfigurationError(
            f"table {uri}: no connection has credentials for it, and the AWS SDK finds none where the job runs; name a "
            "connection in 'aws_conn_id' of DeltaTable, or give this machine an instance role"
        )

    def present() -> dict[str, str]:
        frozen = credentials.get_frozen_credentials()  # fetches them again if they are about to expire
        options = {
            "AWS_ACCESS_KEY_ID": frozen.access_key,
            "AWS_SECRET_ACCESS_KEY": frozen.secret_key,
            "AWS_SESSION_TOKEN": frozen.token,
            "AWS_REGION": aws.region or session.region_name,
            "AWS_ENDPOINT_URL": aws.endpoint_url,
            "AWS_ALLOW_HTTP": "true" if (aws.endpoint_url or "").startswith("http://") else None,
            "AWS_CONDITIONAL_PUT": "etag",  # only the first writer can create a version
        }
        return {name: value for name, value in options.items() if value}

    return present
