"""The batches that a table has: one row for each batch, in a second table, written in the same transaction.

If two owners of a partition commit the same batch, the unique key of this table decides. If a rejected batch is
delivered again, the fencing token decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.sql.database import SinkDatabase
from airflow_provider_coordination.spark.writes.sql import SqlTable

TABLE = "_coordination_batches"
IDS_AT_A_TIME = 500


class CommittedBatches:
    """The batches that one table has.

    :param database: the database of the table.
    :param settings: the settings of the table.
    :param sink: the name of the sink.
    """

    def __init__(self, database: SinkDatabase, settings: SqlTable, sink: str) -> None:
        self._database = database
        self._target = settings.table_name
        self._sink = sink
        self._table = f"{database.quoted(settings.schema)}.{database.quoted(TABLE)}"
        self._rows = f"{database.quoted(settings.schema)}.{database.quoted(settings.table_name)}"

    @property
    def definition(self) -> str:
        """The statement that creates the table of batches."""
        name, instant = self._database.batch_id_type, self._database.instant_type
        return (
            f"CREATE TABLE {self._table} (target {name} NOT NULL, batch_id {name} NOT NULL, sink {name} NOT NULL, "
            f"partition_folder {name} NOT NULL, set_id {name} NOT NULL, fencing_token BIGINT NOT NULL, "
            f"row_count BIGINT NOT NULL, committed_at {instant} NOT NULL, PRIMARY KEY (target, batch_id))"
            f"{self._database.table_options}"
        )

    def exists(self, cursor: Any) -> bool:
        """Return whether the table of batches exists."""
        return self._database.columns(cursor, TABLE) is not None

    def any(self, cursor: Any) -> bool:
        """Return whether the target has any batch; the table of batches must exist."""
        cursor.execute(f"SELECT 1 FROM {self._table} WHERE target = %s LIMIT 1", (self._target,))
        return cursor.fetchone() is not None

    def among(self, cursor: Any, attempts: Sequence[Attempt]) -> set[str]:
        """Return which of some batches the target has.

        :raises DeliveryError: if another sink of the job committed one of them.
        """
        by_id, committed = {attempt.batch_id: attempt for attempt in attempts}, set()
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
                committed.add(batch_id)
        return committed

    def restore(self, cursor: Any) -> None:
        """Record the batches whose rows the target has, if the table of batches was lost or is new."""
        batch_id = self._database.quoted(BATCH_ID)
        cursor.execute(
            f"INSERT INTO {self._table} SELECT %s, b.id, '', '', '', 0, b.number, CURRENT_TIMESTAMP FROM (SELECT "
            f"{batch_id} AS id, COUNT(*) AS number FROM {self._rows} WHERE {batch_id} IS NOT NULL GROUP BY "
            f"{batch_id}) b",
            (self._target,),
        )

    def claim(self, cursor: Any, attempt: Attempt, rows: int) -> bool:
        """Record that an attempt commits a batch; its row stays locked until the transaction ends.

        :returns: whether the rows must be written; False if the batch is already in.
        :raises PartitionNotOwnedError: if a later owner has delivered the batch again.
        :raises DeliveryError: if another sink of the job has committed the batch.
        """
        noted = (self._sink, attempt.folder, attempt.set_id, attempt.fencing_token, rows)
        cursor.execute(
            f"INSERT INTO {self._table} (target, batch_id, sink, partition_folder, set_id, fencing_token, row_count, "
            f"committed_at) VALUES (%s, %s, %s, %s, %s, %s, %s, CURRENT_TIMESTAMP) {self._database.skip_known_clause}",
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
        """Return whether an attempt replaces the committed rows; see `claim`."""
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
        """Check that no other sink of the job has committed a batch to the same table."""
        if set_id == attempt.set_id and sink != self._sink:
            raise DeliveryError(
                f"batch {attempt.batch_id}: sink {sink!r} of the same job has committed it to this table, and sink "
                f"{self._sink!r} would do so too: give each sink its own table"
            )
