"""The settings of a database table: how to reach it, and how rows are written to it."""

from __future__ import annotations

from dataclasses import dataclass, field

POSTGRESQL = "postgresql"
MYSQL = "mysql"
"""MySQL or MariaDB: both use the same protocol."""
PORTS = {POSTGRESQL: 5432, MYSQL: 3306}


@dataclass(frozen=True, kw_only=True)
class SqlSettings:
    """A table of a database.

    :param database: the kind of server: `postgresql` or `mysql`.
    :param host: a host name, an address, or the folder of the server's socket.
    :param port: the port.
    :param catalog: the database on the server; in MySQL also the prefix of a table's name.
    :param user: the user to connect as.
    :param password: never shown.
    :param tls: the TLS settings, under the client's names; never shown.
    :param schema: the schema of the table; in MySQL the database.
    :param table: the name of the table.
    :param staging_path: the folder where rows are staged until their commit.
    :param merge_on: the columns by which a row replaces an existing one; if there are none, every row is added.
    :param add_columns: whether missing columns are added to the table.
    """

    database: str
    host: str
    port: int
    catalog: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: dict[str, str] = field(default_factory=dict, repr=False)
    schema: str
    table: str
    staging_path: str
    merge_on: tuple[str, ...] = ()
    add_columns: bool = False

    @property
    def location(self) -> str:
        """The location of the table, for display; the same for all spellings of its name."""
        return f"{self.database}://{self.host}:{self.port}/{self.catalog}/{self.schema}.{self.table}"
