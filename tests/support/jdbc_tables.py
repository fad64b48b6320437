"""Tables of databases as jobs read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_coordination.sources.jdbc.kind import JdbcDatabase, JdbcTable


def jdbc_table(
    url: str,
    *,
    user: str | None = None,
    password: str | None = None,
    properties: Mapping[str, str] | None = None,
    **fields: Any,
) -> JdbcTable:
    """Return the table `orders`, divided by its column `id`, with its database.

    :param url: the JDBC URL.
    :param user: the user.
    :param password: the password.
    :param properties: properties of the driver from the connection.
    :param fields: further fields, and other values for these two.
    """
    database = JdbcDatabase(url=url, user=user, password=password, properties=properties or {})
    return JdbcTable(**{"table": "orders", "column": "id", "database": database, **fields}).resolved()
