"""Selecting the store that a command works on, from options, environment variables and Airflow connections."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.held_leases import DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from airflow_provider_coordination.stores import StoreSettings

if TYPE_CHECKING:
    from airflow_provider_coordination.hooks.connections import AirflowConnections

STORE_VARIABLE = "AIRFLOW_COORDINATION_STORE"
DEFAULT_CONN_ID = "coordination_default"
AIRFLOW_PROCESS_CONTEXT_VARIABLE = "_AIRFLOW_PROCESS_CONTEXT"


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The options of the command line that select the store.

    :param conn_id: an Airflow connection; takes precedence over the environment variable.
    :param store: the store's URL; takes precedence over the environment variable.
    :param table: the table; takes precedence over the table of the URL or the connection.
    :param prefix: the prefix of sources; takes precedence over the connection's prefix.
    """

    conn_id: str | None = None
    store: str | None = field(default=None, repr=False)
    table: str | None = None
    prefix: str | None = None


@dataclass(frozen=True, kw_only=True)
class StoreAccess:
    """A store, and the settings of the connection that a command needs beside it.

    :param settings: the store's settings.
    :param prefix: the prefix of sources; None if there is none.
    :param region: the AWS region to use if nothing else names one, from the connection.
    :param retry_policy: how failed partitions are retried, from the connection.
    :param safety_margin: by how much the clocks of machines may differ, from the connection.
    """

    settings: StoreSettings
    prefix: str | None = None
    region: str | None = None
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
    safety_margin: timedelta = DEFAULT_SAFETY_MARGIN


def store_access(options: StoreOptions, environment: Mapping[str, str]) -> StoreAccess:
    """Return the store that the options and the environment select.

    :raises ConfigurationError: if the options contradict each other, or the store's settings are not usable.
    """
    if options.conn_id and options.store:
        raise ConfigurationError("--conn-id and --store exclude each other; give one of them")
    url = options.store or (None if options.conn_id else environment.get(STORE_VARIABLE))
    if url:
        return StoreAccess(settings=StoreSettings.from_url(url, options.table), prefix=options.prefix or None)
    access = _from_connection(options.conn_id or DEFAULT_CONN_ID)
    settings = access.settings.with_table(options.table) if options.table else access.settings
    return replace(access, settings=settings, prefix=options.prefix or access.prefix)


def _from_connection(conn_id: str) -> StoreAccess:
    try:
        with airflow_connections():
            from airflow_provider_coordination.hooks.coordination import CoordinationHook

            settings = CoordinationHook(conn_id).settings
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("airflow"):
            raise
        raise ConfigurationError(
            f"connection {conn_id!r} cannot be looked up because Airflow is not installed here; "
            f"give --store, or set {STORE_VARIABLE}"
        ) from None
    return StoreAccess(
        settings=settings.store,
        prefix=settings.prefix,
        region=settings.region,
        retry_policy=settings.retry_policy,
        safety_margin=settings.safety_margin,
    )


def import_airflow() -> None:
    """Import Airflow if it is installed. Its output goes to standard error, so that it does not mix with results."""
    with redirect_stdout(sys.stderr), suppress(ModuleNotFoundError):
        importlib.import_module("airflow.sdk")


@contextmanager
def airflow_connections(default_region: str | None = None) -> Iterator[AirflowConnections]:
    """Look up connections as Airflow's own commands do, including those in its database.

    :param default_region: the AWS region to use if nothing else names one.
    """
    before = os.environ.get(AIRFLOW_PROCESS_CONTEXT_VARIABLE)
    os.environ[AIRFLOW_PROCESS_CONTEXT_VARIABLE] = "server"
    try:
        with redirect_stdout(sys.stderr):  # Airflow's warnings must not mix with the results
            from airflow_provider_coordination.hooks.connections import AirflowConnections

            yield AirflowConnections(default_region)
    finally:
        del os.environ[AIRFLOW_PROCESS_CONTEXT_VARIABLE]
        if before is not None:
            os.environ[AIRFLOW_PROCESS_CONTEXT_VARIABLE] = before
