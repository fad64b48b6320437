"""Which batches a table of a database has taken: a row for each, in a table beside it, by the same transaction.

Its unique key decides where two owners of a partition commit the same batch; its fencing token, where a batch that was
rejected is delivered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.sql.database import Database
from airflow_provider_coordination.spark.sql.settings import SqlSettings
from airflow_provider_coordination.spark.staged_batches import BATCH_ID

TABLE = "_coordination_batches"
IDS_AT_A_TIME = 500


class TakenBatches:
    """The batches that one table has taken.

    :param database: where it is.
    :param settings: which table.
    :param sink: the sink's name.
    """

    def __init__(self, database: Database, settings: SqlSettings, sink: str) -> None:
        self._database = database
        self._target = settings.table
        self._sink = sink
        self._table = f"{database.quoted(settings.schema)}.{database.quoted(TABLE)}"
        self._rows = f"{database.quoted(settings.schema)}.{database.quoted(settings.table)}"

    @property
    def definition(self) -> str:
        """The statement that makes the table."""
        name, instant = self._database.batch_id_type, self._database.instant_type
        return (
            f"CREATE TABLE {self._table} (target {name} NOT NULL, batch_id {name} NOT NULL, sink {name} NOT NULL, "
            f"partition_folder {name} NOT NULL, set_id {name} NOT NULL, fencing_token BIGINT NOT NULL, "
            f"row_count BIGINT NOT NULL, committed_at {instant} NOT NULL, PRIMARY KEY (target, batch_id))"
            f"{self._database.table_options}"
        )

    def exists(self, cursor: Any) -> bool:
        """Return whether the table is there."""
        return self._database.columns(cursor, TABLE) is not None

    def any(self, cursor: Any) -> bool:
        """Return whether the target has taken a batch; the table is there."""
        cursor.execute(f"SELECT 1 FROM {self._table} WHERE target = %s LIMIT 1", (self._target,))
        return cursor.fetchone() is not None

    def among(self, cursor: Any, attempts: Sequence[Attempt]) -> set[str]:
        """Return which of some batches are in.

        :raises DeliveryError: if another sink of the job has brought one.
        """
        by_id, found = {attempt.batch_id: attempt for attempt in attempts}, set()
        batch_ids = list(by_id) if self.exists(cursor) else []
        for start in range(0, len(batch_ids), IDS_AT_A_TIME):
            some = batch_ids[start : start + IDS_AT_A_TIME]
            cursor.execute(
                f"SELECT batch_id, sink, set_id FROM {self._table} WHERE target = %s AND batch_id IN "
                f"({', '.join(['%s'] * len(some))})",
                (self._target, *some),
            )
            for batch_id, sink, set_id in cursor.fetchall():
                self._check_own(by_id[batch_id], sink, set_id)
                found.add(batch_id)
        return found

    def restore(self, cursor: Any) -> None:
        """Note the batches whose rows the target has, where the table was lost, or the target came without it."""
        batch_id = self._database.quoted(BATCH_ID)
        cursor.execute(
            f"INSERT INTO {self._table} SELECT %s, b.id, '', '', '', 0, b.number, CURRENT_TIMESTAMP FROM (SELECT "
            f"{batch_id} AS id, COUNT(*) AS number FROM {self._rows} WHERE {batch_id} IS NOT NULL GROUP BY "
            f"{batch_id}) b",
            (self._target,),
        )

    def claim(self, cursor: Any, attempt: Attempt, rows: int) -> bool:
        """Note that an attempt brings a batch; its row is locked until the transaction ends.

        :returns: whether the rows are to be written; they are not if the batch is in.
        :raises PartitionNotOwnedError: if a later owner has delivered it again.
        :raises DeliveryError: if another sink of the job has.
        """
        noted = (self._sink, attempt.folder, attempt.set_id, attempt.fencing_token, rows)
        cursor.execute(
            f"INSERT INTO {self._table} (target, batch_id, sink, partition_folder, set_id, fencing_token, row_count, "
            f"committed_at) VALUES (%s, %s, %s, %s, %s, %s, %s, CURRENT_TIMESTAMP) {self._database.skips_known}",
            (self._target, attempt.batch_id, *noted),
        )
        if cursor.rowcount == 1:
            return True
        key = (self._target, attempt.batch_id)
        cursor.execute(
            f"SELECT sink, set_id, fencing_token FROM {self._table} WHERE target = %s AND batch_id = %s FOR UPDATE", key
        )
        [(sink, set_id, fencing_token)] = cursor.fetchall()
        if not self._is_owed(attempt, sink, set_id, fencing_token):
            return False
        cursor.execute(f"DELETE FROM {self._rows} WHERE {self._database.quoted(BATCH_ID)} = %s", key[1:])
        cursor.execute(
            f"UPDATE {self._table} SET sink = %s, partition_folder = %s, set_id = %s, fencing_token = %s, row_count = "
            "%s, committed_at = CURRENT_TIMESTAMP WHERE target = %s AND batch_id = %s",
            (*noted, *key),
        )
        return True

    def _is_owed(self, attempt: Attempt, sink: str, set_id: str, fencing_token: int) -> bool:
        """Return whether an attempt replaces what is in; see `claim`."""
        self._check_own(attempt, sink, set_id)
        if set_id == attempt.set_id or not attempt.batch.redeliver:
            return False
        if fencing_token > attempt.fencing_token:
            raise PartitionNotOwnedError(
                f"batch {attempt.batch_id} was delivered again under fencing token {fencing_token}; this job has "
                f"{attempt.fencing_token}"
            )
        return True

    def _check_own(self, attempt: Attempt, sink: str, set_id: str) -> None:
        """Check that no other sink of the job, which leads to the same table, has brought a batch."""
        if set_id == attempt.set_id and sink != self._sink:
            raise DeliveryError(
                f"batch {attempt.batch_id}: sink {sink!r} of the same job has brought it to this table, and sink "
                f"{self._sink!r} would too: give each sink a table of its own"
            )
