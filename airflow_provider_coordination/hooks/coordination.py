"""The hook of the connection type `coordination`: the store, the lease times, and Airflow's metrics."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.log import mask_secret

from airflow_provider_coordination.airflow_names import Stats
from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.held_leases import (
    DEFAULT_OWNERSHIP_TIMEOUT,
    DEFAULT_SAFETY_MARGIN,
    check_lease_times,
)
from airflow_provider_coordination.coordination.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.field_hints import Limits
from airflow_provider_coordination.hooks.configuration import Configuration
from airflow_provider_coordination.hooks.connections import airflow_connection, aws_settings
from airflow_provider_coordination.stores import DEFAULT_HISTORY_DAYS, DEFAULT_KIND, StoreSettings, open_store
from airflow_provider_coordination.stores.kind import STORE_KINDS, ConnectionFields
from airflow_provider_coordination.stores.redaction import secrets_of, without_secrets

log = logging.getLogger(__name__)

NOT_IN_A_TAG = re.compile(r"[^a-zA-Z0-9_.-]")


class AirflowMetrics:
    """Reports metrics to Airflow's stats; an implementation of `Metrics`.

    Characters in a tag's value that are special in StatsD's formats become `_`; Airflow would drop the whole metric.
    """

    def __init__(self) -> None:
        self._has_failed = False

    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        """Add to a counter."""
        try:
            Stats.incr(str(name), count=by, tags=_sendable(tags))
        except Exception as error:
            self._log_once(error)

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Set a gauge."""
        try:
            Stats.gauge(str(name), value, tags=_sendable(tags))
        except Exception as error:
            self._log_once(error)

    def _log_once(self, error: Exception) -> None:
        """Log the first failure only: the work continues, and a backend that cannot be set up fails at every call."""
        if not self._has_failed:
            self._has_failed = True
            log.warning("Airflow's stats failed; this task reports no metrics: %s: %s", type(error).__name__, error)


def _sendable(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: NOT_IN_A_TAG.sub("_", value) for name, value in tags.items()}


TEST_SECONDS = 3.0
"""How long the test of a connection retries temporary errors: a user is waiting for it."""
COMMON_FIELDS = (
    "store",
    "region",
    "prefix",
    "ownership_timeout",
    "safety_margin",
    "max_attempts",
    "max_closed_count",
    "history_days",
)
"""The fields of a connection's extra, in addition to those of its kind of store."""
LENGTH = Annotated[timedelta, Limits(minimum=timedelta(0), words="a number of seconds, such as 60")]
DAYS = Annotated[float, Limits(minimum=0, words="a number of days, such as 7, or 0 for no history")]
EXAMPLE = '{"store": "sql", "url": "postgresql://host/database"}'


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """The checked settings of a connection.

    :param store: the store of the partitions; its URL holds the login and the password.
    :param region: the AWS region to use if nothing else names one.
    :param prefix: separates installations that share the store.
    :param ownership_timeout: how long a lease runs without renewal.
    :param safety_margin: by how much the clocks of the machines may differ.
    :param retry_policy: how failing partitions are retried and parked.
    """

    store: StoreSettings
    region: str | None = None
    prefix: str | None = None
    ownership_timeout: timedelta = DEFAULT_OWNERSHIP_TIMEOUT
    safety_margin: timedelta = DEFAULT_SAFETY_MARGIN
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY

    def view(self, source: str, *, store: CoordinationStore | None = None, clock: Clock | None = None) -> SourceView:
        """Open the store and return an initialized view of a source; close its `store` afterwards.

        :param source: the source's name.
        :param store: the store, if it is open already.
        :param clock: the source of the time.
        :raises ConfigurationError: if the settings or the source's name are not usable.
        :raises StoreUnavailableError: if the store does not respond.
        """
        view = SourceView(
            store or open_store(self.store),
            source,
            prefix=self.prefix,
            safety_margin=self.safety_margin,
            clock=clock,
        )
        view.initialize()
        return view

    def coordinator(
        self, source: str, owner: str, *, store: CoordinationStore | None = None, clock: Clock | None = None
    ) -> SourceCoordinator:
        """Open the store and return an initialized coordinator; close its `store` afterwards.

        The coordinator reports its metrics to Airflow's stats.

        :param source: the source's name.
        :param owner: the owner that the coordinator acts for, as `new_owner` makes it.
        :param store: the store, if it is open already.
        :param clock: the source of the time.
        :raises ConfigurationError: if the settings or the source's name are not usable.
        :raises StoreUnavailableError: if the store does not respond.
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

    The connection's extra holds its fields as a JSON object: `store`, `region`, `prefix`, `ownership_timeout` and
    `safety_margin` (seconds), `max_attempts` and `max_closed_count`, `history_days`, and those of the kind of store,
    which also uses login and password. The section `[coordination]` of Airflow's configuration sets the defaults.

    :param coordination_conn_id: the connection.
    """

    conn_name_attr = "coordination_conn_id"
    default_conn_name = "coordination_default"
    conn_type = "coordination"
    hook_name = "Coordination"

    def __init__(self, coordination_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.coordination_conn_id = coordination_conn_id
        self._settings: ConnectionSettings | None = None

    @property
    def settings(self) -> ConnectionSettings:
        """The checked settings of the connection; it is read once.

        :raises ConfigurationError: naming the connection, the field, the value and the remedy.
        """
        # No `cached_property`: up to Python 3.11 all hooks share one lock of it, and a secrets backend may be slow.
        if self._settings is None:
            name = f"connection {self.coordination_conn_id!r}"
            connection = airflow_connection(self.coordination_conn_id, name, "create it with type 'coordination'")
            self._settings = connection_settings(connection)
        return self._settings

    def get_conn(self) -> Any:
        """Open the store; close it afterwards."""
        return open_store(self.settings.store)

    def view(self, source: str) -> SourceView:
        """Return an initialized view of a source, for reading only; see `ConnectionSettings.view`."""
        return self.settings.view(source)

    def coordinator(self, source: str, owner: str) -> SourceCoordinator:
        """Return an initialized coordinator of a source; see `ConnectionSettings.coordinator`."""
        return self.settings.coordinator(source, owner)

    def test_connection(self) -> tuple[bool, str]:
        """Open the store, initialize it and query it; the message describes any error, without a password."""
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
            # The text of an unexpected error may contain anything, including the URL.
            return (
                False,
                f"connection {self.coordination_conn_id!r}: the store failed with {type(error).__name__}",
            )
        table = settings.store.table
        return True, "The store responds." if table is None else f"The store responds; table {table!r} is ready."


def connection_settings(connection: Connection) -> ConnectionSettings:
    """Return the checked settings of a connection.

    :raises ConfigurationError: naming the connection, the field, the value and the remedy.
    """
    name = f"connection {connection.conn_id!r}"
    if connection.conn_type != CoordinationHook.conn_type:
        raise ConfigurationError(
            f"{name} is of type {connection.conn_type!r}; name one of type {CoordinationHook.conn_type!r}"
        )
    values = _given(name, connection.extra)
    fields = ConnectionFields(
        name=name,
        values=values,
        login=connection.login or None,
        password=connection.password or None,
        aws=lambda conn_id, service, region: aws_settings(conn_id, service=service, default_region=region),
    )
    configuration = Configuration.read()
    attempts = fields.read("max_attempts", Annotated[int, Limits(minimum=1)], configuration.max_attempts)
    closed = fields.read("max_closed_count", Annotated[int, Limits(minimum=0)], configuration.max_closed_count)
    with _naming(name):
        retry_policy = RetryPolicy(max_attempts=attempts, max_closed_count=closed)
    settings = ConnectionSettings(
        store=_store_settings(fields),
        region=fields.text("region"),
        prefix=fields.text("prefix"),
        ownership_timeout=fields.read("ownership_timeout", LENGTH, configuration.ownership_timeout),
        safety_margin=fields.read("safety_margin", LENGTH, configuration.safety_margin),
        retry_policy=retry_policy,
    )
    with _naming(name):
        settings.store.check()
        check_lease_times(settings.ownership_timeout, settings.safety_margin)
    return settings


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the connection in errors of the enclosed code."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def _store_settings(fields: ConnectionFields) -> StoreSettings:
    kind = fields.text("store") or DEFAULT_KIND
    with _naming(fields.name):
        store_kind = STORE_KINDS.load(kind)
    if not store_kind.is_shared:
        raise ConfigurationError(
            f"{fields.name}: field 'store' is {kind!r}, which tasks cannot share; use 'sql' or 'dynamodb'"
        )
    _check_names(fields, store_kind.connection_fields)
    days = fields.read("history_days", DAYS, DEFAULT_HISTORY_DAYS)
    settings = StoreSettings.of(kind, store_kind.from_connection(fields), history_days=days)
    for secret in secrets_of(settings):
        mask_secret(secret)
    return settings


def _check_names(fields: ConnectionFields, own: Collection[str]) -> None:
    """Check that every field is known; a form sends unticked boxes, as false, for every kind of store."""
    for field in fields.values:
        if field in COMMON_FIELDS or field in own:
            continue
        others = _kinds_with(field)
        if not others:
            known = ", ".join((COMMON_FIELDS[0], *own, *COMMON_FIELDS[1:]))
            raise ConfigurationError(f"{fields.name}: unknown field {field!r}; the known fields are {known}")
        if fields.values[field] is not False:
            stores = " and ".join(map(repr, others))
            raise ConfigurationError(
                f"{fields.name}: field {field!r} belongs to the store {stores}; remove it, or set 'store' to that"
            )


def _kinds_with(field: str) -> list[str]:
    """Return the importable kinds of stores that have a connection field."""
    kinds = []
    for kind in STORE_KINDS.names():
        with suppress(ConfigurationError):
            if field in STORE_KINDS.load(kind).connection_fields:
                kinds.append(kind)
    return kinds


def _given(name: str, extra: str | None) -> Mapping[str, Any]:
    try:
        values = json.loads(extra) if extra else {}
    except ValueError:
        raise ConfigurationError(f"{name}: extra is not JSON; give an object such as {EXAMPLE}") from None
    if not isinstance(values, dict):
        raise ConfigurationError(f"{name}: extra is not a JSON object; give one such as {EXAMPLE}")
    # A saved form sends its empty fields too.
    return {field: value for field, value in values.items() if value is not None and value != ""}
