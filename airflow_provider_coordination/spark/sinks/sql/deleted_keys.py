"""The keys that were deleted from a table, with their order, so that no older change restores them.

They are in a table beside the target, and are written in the transaction that deletes the rows. Its columns have the
types of the target's, so that both tables compare values alike.
"""

from __future__ import annotations

import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sinks.sql.columns import stores_exactly
from airflow_provider_coordination.spark.sinks.sql.database import DELETED_AT, SinkDatabase, tombstones_name


class DeletedKeys:
    """The tombstones of one target.

    :param database: the database of the target.
    """

    def __init__(self, database: SinkDatabase) -> None:
        self._database = database
        self._settings = database.settings
        self._name = tombstones_name(self._settings.table_name)

    def removal(self, inspector: sa.Inspector) -> list[str]:
        """Return the statements that remove the tombstones of a former target with the same name."""
        is_there = inspector.has_table(self._name, self._settings.schema)
        return [f"DROP TABLE {self._database.tombstones}"] if is_there else []

    def creation(self) -> list[str]:
        """Return the statements that create the table once the target has all columns; none if no row deletes."""
        return self._database.tombstones_creation() if self._settings.op is not None else []

    def changes(self, inspector: sa.Inspector, schema: pa.Schema) -> list[str]:
        """Return the statements that create the table if it is missing.

        :param schema: the columns of the rows.
        :raises DeliveryError: if it cannot hold the keys and the order of the rows.
        """
        if self._settings.op is None:
            return []
        if not inspector.has_table(self._name, self._settings.schema):
            return self.creation()
        columns = {each["name"]: each["type"] for each in inspector.get_columns(self._name, self._settings.schema)}
        remembered = self._database.remembered
        if columns.keys() != {*remembered, DELETED_AT}:
            raise DeliveryError(
                f"table {self._database.tombstones} holds deleted keys of {self._database.table} with the columns "
                f"{', '.join(columns)}, but 'merge_on' and 'order_by' name {', '.join(remembered)}; to forget these "
                f"keys, run DROP TABLE {self._database.tombstones}"
            )
        for name in remembered:
            if not stores_exactly(columns[name], kind := schema.field(name).type):
                raise DeliveryError(
                    f"column {name!r} of table {self._database.tombstones} cannot store every value of {kind} exactly: "
                    "give it the type that the same column of the target has"
                )
        return []

    def expire(self, connection: sa.Connection) -> None:
        """Remove the tombstones that are older than `tombstone_retention`, by the clock of the server."""
        now = connection.scalar(sa.text("SELECT CURRENT_TIMESTAMP(6)"))
        table = sa.table(self._name, sa.column(DELETED_AT), schema=self._settings.schema)
        is_old = table.c[DELETED_AT] <= now - self._settings.tombstone_retention
        connection.execute(sa.delete(table).where(is_old))
