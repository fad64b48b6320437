"""Airflow's connections, and the reason why a connection that a user defined is not found.

Airflow skips a connection that it cannot read, and reports that there is none.
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

    :param name: how error messages name it, such as `connection 'x'`.
    :param remedy: what to do if it is not defined, such as `create it`.
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

    :param name: how error messages name the connection.
    :raises ConfigurationError: naming the variable and the error, but nothing of its value, which may hold a password.
    """
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    value = os.environ.get(variable)
    if value is None:
        return
    error = _value_error(value.strip(), conn_id)
    if error is not None:
        raise ConfigurationError(
            f"{name}: the environment variable {variable} {error}; give a JSON object such as "
            '{"conn_type": "…", "login": "…", "password": "…", "extra": {…}}, or a URI'
        )


def _value_error(value: str, conn_id: str) -> str | None:
    if not value:
        return "is empty"
    if not value.startswith("{"):
        if "://" not in value:
            return "is neither a JSON object nor a URI"
        try:
            Connection.from_uri(value, conn_id)
        except Exception:  # any error of Airflow: its text may quote a password
            return "is not a URI that Airflow can read"
        return None
    try:
        fields = json.loads(value)
    except ValueError as error:
        position = f": {error.msg}, at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return f"is not JSON{position}"
    for field in fields:
        if field not in FIELDS:
            return f"has the unknown field {field!r}; the known fields are {', '.join(FIELDS)}"
    if fields.get("port") and not str(fields["port"]).isdecimal():
        return "has a 'port' that is not a whole number"
    return None
