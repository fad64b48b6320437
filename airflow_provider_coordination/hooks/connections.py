"""Airflow's connections, and why one that somebody did define is not found.

Airflow passes over a connection that it cannot read, and says that there is none.
"""

from __future__ import annotations

import json
import os

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_coordination.coordination.errors import ConfigurationError

FIELDS = ("conn_type", "description", "login", "password", "host", "port", "schema", "extra")


def airflow_connection(conn_id: str, name: str, remedy: str) -> Connection:
    """Return a connection.

    :param name: what errors call it, such as `connection 'x'`.
    :param remedy: what to do where there is none, such as `create it`.
    :raises ConfigurationError: if it is not defined, or the environment variable that defines it cannot be read.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        check_readable(conn_id, name)
        raise ConfigurationError(f"{name} is not defined; {remedy}") from None
    if not connection.conn_type:
        check_readable(conn_id, name)
    return connection


def check_readable(conn_id: str, name: str) -> None:
    """Check that the environment variable of a connection, if there is one, is a JSON object or a URI.

    :param name: what errors call the connection.
    :raises ConfigurationError: naming the variable, and what is wrong with it; nothing of its value, which may hold a
        password.
    """
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    value = os.environ.get(variable)
    if value is None:
        return
    wrong = _what_is_wrong(value.strip(), conn_id)
    if wrong is not None:
        raise ConfigurationError(
            f"{name}: the environment variable {variable} {wrong}; give a JSON object such as "
            '{"conn_type": "…", "login": "…", "password": "…", "extra": {…}}, or a URI'
        )


def _what_is_wrong(value: str, conn_id: str) -> str | None:
    if not value:
        return "is empty"
    if not value.startswith("{"):
        if "://" not in value:
            return "is neither a JSON object nor a URI"
        try:
            Connection.from_uri(value, conn_id)
        except Exception:  # whatever Airflow finds wrong: the text may quote a password
            return "is not a URI that Airflow can read"
        return None
    try:
        fields = json.loads(value)
    except ValueError as error:
        place = f": {error.msg}, at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return f"is not JSON{place}"
    for field in fields:
        if field not in FIELDS:
            return f"has the unknown field {field!r}, known are {', '.join(FIELDS)}"
    if fields.get("port") and not str(fields["port"]).isdecimal():
        return "has a 'port' that is not a whole number"
    return None
