"""The connection type `coordination`: where the partitions are, and how long their leases run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.log import mask_secret

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.coordinator import (
    DEFAULT_OWNERSHIP_TIMEOUT,
    DEFAULT_SAFETY_MARGIN,
    SourceCoordinator,
    check_lease_times,
)
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.configuration import Configuration
from airflow_provider_coordination.hooks.connections import airflow_connection
from airflow_provider_coordination.hooks.metrics import AirflowMetrics
from airflow_provider_coordination.stores import DEFAULT_HISTORY_DAYS, StoreSettings, open_store
from airflow_provider_coordination.stores.hiding import without_secrets

TEST_SECONDS = 3.0
"""How long a test of a connection tries again what may pass: a person waits for it."""
FIELDS = (
    "store",
    "url",
    "table",
    "region",
    "prefix",
    "ownership_timeout",
    "safety_margin",
    "max_attempts",
    "max_closed_count",
    "history_days",
    "aws_conn_id",
    "endpoint_url",
    "sts_role_arn",
    "sts_external_id",
    "skip_table_creation",
    "ttl",
    "provisioned_read_capacity_units",
    "provisioned_write_capacity_units",
)
DYNAMODB_FIELDS = FIELDS[FIELDS.index("aws_conn_id") :]


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """What a connection says, checked.

    :param store: where the partitions are; its URL holds the login and the password.
    :param region: the AWS region where nothing else names one.
    :param prefix: separates installations that share the store.
    :param ownership_timeout: how long a lease runs without renewal.
    :param safety_margin: by how much the clocks of the machines may differ.
    :param retry_policy: what becomes of partitions that fail.
    """

    store: StoreSettings
    region: str | None = None
    prefix: str | None = None
    ownership_timeout: timedelta = DEFAULT_OWNERSHIP_TIMEOUT
    safety_margin: timedelta = DEFAULT_SAFETY_MARGIN
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY

    def coordinator(
        self, source: str, owner: str, *, store: CoordinationStore | None = None, clock: Clock | None = None
    ) -> SourceCoordinator:
        """Open the store and return an initialized coordinator; close its `store` afterwards.

        What it counts goes to Airflow's stats.

        :param source: the source's name.
        :param owner: who acts, as made by `new_owner`.
        :param store: the store, where it is open already.
        :param clock: where the time comes from.
        :raises ConfigurationError: if the settings or the source's name are not usable.
        :raises StoreUnavailableError: if the store does not answer.
        """
        coordinator = SourceCoordinator(
            store or open_store(self.store),
            source,
            owner,
            prefix=self.prefix,
            ownership_timeout=self.ownership_timeout,
            safety_margin=self.safety_margin,
            retry_policy=self.retry_policy,
            metrics=AirflowMetrics(),
            clock=clock,
        )
        coordinator.initialize()
        return coordinator


class CoordinationHook(BaseHook):
    """Reads a connection of type `coordination`.

    Its fields are those of the form, kept in the connection's extra as a JSON object: `store`, `url`,
    `table`, `region`, `prefix`, `ownership_timeout` and `safety_margin` (seconds), `max_attempts` and
    `max_closed_count`, `history_days`, and those of the store `dynamodb`. Login and password, where given, go into the
    URL. What it leaves out is what the section `[coordination]` of Airflow's configuration says.

    :param coordination_conn_id: the connection.
    """

    conn_name_attr = "coordination_conn_id"
    default_conn_name = "coordination_default"
    conn_type = "coordination"
    hook_name = "Coordination"

    def __init__(self, coordination_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.coordination_conn_id = coordination_conn_id

    @cached_property
    def settings(self) -> ConnectionSettings:
        """What the connection says, checked.

        :raises ConfigurationError: naming the connection, the field, the value and the remedy.
        """
        name = f"connection {self.coordination_conn_id!r}"
        return connection_settings(
            airflow_connection(self.coordination_conn_id, name, "create it, of type 'coordination'")
        )

    def get_conn(self) -> Any:
        """Open the store; close it afterwards."""
        return open_store(self.settings.store)

    def coordinator(self, source: str, owner: str) -> SourceCoordinator:
        """Return an initialized coordinator; see `ConnectionSettings.coordinator`."""
        return self.settings.coordinator(source, owner)

    def test_connection(self) -> tuple[bool, str]:
        """Open the store, make it ready and ask it a question; the answer says what is wrong, and no password."""
        store_settings = None
        try:
            settings = self.settings
            store_settings = settings.store
            store = open_store(store_settings, retry_deadline_seconds=TEST_SECONDS)
            try:
                store.initialize()
                store.count_by_status("connection-test|PARTITION")
            finally:
                store.close()
        except CoordinationError as error:
            return False, without_secrets(str(error), store_settings)
        except Exception as error:
            # The text of an error nobody foresaw may hold anything, the URL included.
            return (
                False,
                f"connection {self.coordination_conn_id!r}: the store failed with {type(error).__name__}",
            )
        return True, f"The store answers; table {settings.store.table!r} is ready."


def connection_settings(connection: Connection) -> ConnectionSettings:
    """Return what a connection says, checked.

    :raises ConfigurationError: naming the connection, the field, the value and the remedy.
    """
    name = f"connection {connection.conn_id!r}"
    if connection.conn_type != CoordinationHook.conn_type:
        raise ConfigurationError(
            f"{name} is of type {connection.conn_type!r}; name one of type {CoordinationHook.conn_type!r}"
        )
    given = _given_fields(name, connection.extra)
    configuration = Configuration.read()
    attempts, closed = _whole(name, given, "max_attempts"), _whole(name, given, "max_closed_count", least=0)
    try:
        retry_policy = RetryPolicy(
            max_attempts=configuration.max_attempts if attempts is None else attempts,
            max_closed_count=configuration.max_closed_count if closed is None else closed,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    settings = ConnectionSettings(
        store=_store_settings(name, given, connection),
        region=_text(name, given, "region"),
        prefix=_text(name, given, "prefix"),
        ownership_timeout=_seconds(name, given, "ownership_timeout", configuration.ownership_timeout),
        safety_margin=_seconds(name, given, "safety_margin", configuration.safety_margin),
        retry_policy=retry_policy,
    )
    try:
        settings.store.check()
        check_lease_times(settings.ownership_timeout, settings.safety_margin)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    return settings


def _store_settings(name: str, given: Mapping[str, Any], connection: Connection) -> StoreSettings:
    store = _text(name, given, "store") or "sql"
    if store == "in_memory":
        raise ConfigurationError(
            f"{name}: field 'store' is 'in_memory', which tasks cannot share; use 'sql' or 'dynamodb'"
        )
    table = _text(name, given, "table") or StoreSettings.table
    if store == "dynamodb":
        return _dynamodb_settings(name, given, connection, table)
    for field in DYNAMODB_FIELDS:
        if given.get(field, False) is not False:  # a form sends what is not ticked as well
            raise ConfigurationError(
                f"{name}: field {field!r} is of the store 'dynamodb'; remove it, or set 'store' to that"
            )
    url = _with_login(name, _text(name, given, "url"), connection.login, connection.password)
    return StoreSettings(store=store, url=url, table=table, history_days=_history_days(name, given))


def _dynamodb_settings(name: str, given: Mapping[str, Any], connection: Connection, table: str) -> StoreSettings:
    if connection.login or connection.password:
        raise ConfigurationError(
            f"{name}: DynamoDB has no login; leave login and password empty, and name a connection with keys in "
            "'aws_conn_id'"
        )
    aws_conn_id, region = _text(name, given, "aws_conn_id"), _text(name, given, "region")
    role_arn, external_id = _text(name, given, "sts_role_arn"), _text(name, given, "sts_external_id")
    read, write = (_whole(name, given, field) for field in DYNAMODB_FIELDS[-2:])
    if (read is None) != (write is None):
        missing, present = DYNAMODB_FIELDS[-2:] if read is None else reversed(DYNAMODB_FIELDS[-2:])
        raise ConfigurationError(f"{name}: field {missing!r} is missing; give it, or remove {present!r} for on-demand")
    try:
        base = AwsSettings(region=region)
        if aws_conn_id is not None:
            base = aws_settings(aws_conn_id, service="dynamodb", default_region=region)
        aws = replace(
            base,
            endpoint_url=_text(name, given, "endpoint_url") or base.endpoint_url,
            role_arn=role_arn or base.role_arn,
            external_id=external_id or (None if role_arn else base.external_id),
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    return StoreSettings(
        store="dynamodb",
        url=_text(name, given, "url"),
        table=table,
        aws=aws,
        skip_table_creation=_yes_or_no(name, given, "skip_table_creation"),
        ttl_seconds=_whole(name, given, "ttl"),
        read_capacity_units=read,
        write_capacity_units=write,
        history_days=_history_days(name, given),
    )


def _given_fields(name: str, extra: str | None) -> Mapping[str, Any]:
    try:
        values = json.loads(extra) if extra else {}
    except ValueError:
        raise ConfigurationError(f"{name}: extra is not JSON; give an object with {', '.join(FIELDS)}") from None
    if not isinstance(values, dict):
        raise ConfigurationError(f"{name}: extra is not a JSON object; give one with {', '.join(FIELDS)}")
    for field in values:
        if field not in FIELDS:
            raise ConfigurationError(f"{name}: unknown field {field!r}; known are {', '.join(FIELDS)}")
    # A form that is saved sends its empty fields too.
    return {field: value for field, value in values.items() if value is not None and value != ""}


def _text(name: str, given: Mapping[str, Any], field: str) -> str | None:
    value = given.get(field)
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{name}: field {field!r} must be text; got {value!r}")
    return value


def _whole(name: str, given: Mapping[str, Any], field: str, *, least: int = 1) -> int | None:
    value = given.get(field)
    if value is None:
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if type(number) is not int or number < least:
        raise ConfigurationError(f"{name}: field {field!r} must be a whole number, at least {least}; got {value!r}")
    return number


def _yes_or_no(name: str, given: Mapping[str, Any], field: str) -> bool:
    value = given.get(field, False)
    value = {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name}: field {field!r} must be true or false; got {value!r}")
    return value


def _history_days(name: str, given: Mapping[str, Any]) -> float:
    return _number(name, given, "history_days", "days, such as 7, or 0 for no history", DEFAULT_HISTORY_DAYS)


def _seconds(name: str, given: Mapping[str, Any], field: str, default: timedelta) -> timedelta:
    try:
        return timedelta(seconds=_number(name, given, field, "seconds, such as 60", default.total_seconds()))
    except OverflowError:
        raise ConfigurationError(f"{name}: field {field!r} is too many seconds; got {given[field]!r}") from None


def _number(name: str, given: Mapping[str, Any], field: str, of: str, default: float) -> float:
    if field not in given:
        return default
    value = given[field]
    try:
        number = math.nan if isinstance(value, bool) else float(value)
        if math.isfinite(number) and number >= 0:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise ConfigurationError(f"{name}: field {field!r} must be a number of {of}; got {value!r}")


def _with_login(name: str, url: str | None, login: str | None, password: str | None) -> str | None:
    """Return the URL with the connection's login and password in it; those win over the URL's own."""
    import sqlalchemy as sa

    from airflow_provider_coordination.stores.sqlite_file import sqlite_path

    if url is None:
        return None
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # the latter of a port that is no number
        raise ConfigurationError(
            f"{name}: field 'url' is not an SQLAlchemy URL; "
            "give for example sqlite:////var/lib/coordination.db or postgresql://host/database"
        ) from None
    if parsed.password:
        mask_secret(parsed.password)
    if parsed.get_backend_name() == "sqlite":
        try:
            sqlite_path(parsed)
        except ConfigurationError as error:
            raise ConfigurationError(f"{name}: {error}") from None
    if not login and not password:
        return url
    if parsed.get_backend_name() == "sqlite":
        raise ConfigurationError(f"{name}: SQLite has no users; leave login and password empty")
    return parsed.set(username=login or parsed.username, password=password or parsed.password).render_as_string(
        hide_password=False
    )
