"""How to reach a table of a database, and how rows go into it."""

from __future__ import annotations

from dataclasses import dataclass, field

POSTGRESQL = "postgresql"
MYSQL = "mysql"
"""MySQL, or MariaDB: both speak the same protocol."""
PORTS = {POSTGRESQL: 5432, MYSQL: 3306}


@dataclass(frozen=True, kw_only=True)
class SqlSettings:
    """A table of a database.

    :param database: what the server is: `postgresql` or `mysql`.
    :param host: where it is: a name, an address, or the folder of its socket.
    :param port: its port.
    :param catalog: the database on it; of MySQL what also stands before a table's name.
    :param user: as whom to connect.
    :param password: never shown.
    :param tls: what the client says of TLS, by the names that it has there; never shown.
    :param schema: the schema of the table; of MySQL the database.
    :param table: its name.
    :param staging_path: the folder where rows wait for their commit.
    :param merge_on: the columns by which a row replaces one that is there; none if every row is added.
    :param add_columns: whether columns that the table lacks are added to it.
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
        """Where the table is, for people; the same however it is named."""
        return f"{self.database}://{self.host}:{self.port}/{self.catalog}/{self.schema}.{self.table}"
