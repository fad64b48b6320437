"""Which store a command works on, and how to reach it without showing a password."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.lease_times import DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from airflow_provider_coordination.stores import StoreSettings

STORE_VARIABLE = "AIRFLOW_COORDINATION_STORE"
DEFAULT_CONN_ID = "coordination_default"
PROCESS_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """What was given on the command line and in the environment.

    :param conn_id: an Airflow connection.
    :param store: a store's URL; wins over the environment, as `conn_id` does.
    :param table: wins over the URL's or the connection's.
    :param prefix: wins over the connection's.
    """

    conn_id: str | None = None
    store: str | None = field(default=None, repr=False)
    table: str | None = None
    prefix: str | None = None


@dataclass(frozen=True, kw_only=True)
class StoreAccess:
    """A store, and the part of it that the command sees.

    :param settings: which store.
    :param prefix: of the sources; None for none.
    :param region: the AWS region where nothing else names one; the connection's, if there is one.
    :param retry_policy: what becomes of partitions that fail; the connection's, if there is one.
    :param safety_margin: by how much the clocks of the machines may differ; the connection's, if there is one.
    """

    settings: StoreSettings
    prefix: str | None = None
    region: str | None = None
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
    safety_margin: timedelta = DEFAULT_SAFETY_MARGIN


def store_access(options: StoreOptions, environment: Mapping[str, str]) -> StoreAccess:
    """Return the store that the options and the environment name.

    :raises ConfigurationError: if they contradict each other, or what they name is not usable.
    """
    if options.conn_id and options.store:
        raise ConfigurationError("give either --conn-id or --store")
    url = options.store or (None if options.conn_id else environment.get(STORE_VARIABLE))
    if url:
        return StoreAccess(settings=StoreSettings.from_url(url, options.table), prefix=options.prefix or None)
    access = _from_connection(options.conn_id or DEFAULT_CONN_ID)
    settings = access.settings.with_table(options.table) if options.table else access.settings
    return replace(access, settings=settings, prefix=options.prefix or access.prefix)


def _from_connection(conn_id: str) -> StoreAccess:
    try:
        with connections_of_airflow():
            from airflow_provider_coordination.hooks.coordination import CoordinationHook

            settings = CoordinationHook(conn_id).settings
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("airflow"):
            raise
        raise ConfigurationError(
            f"connection {conn_id!r} cannot be looked up: Airflow is not installed here; "
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
    """Import Airflow where it is installed: what it writes to standard output would stand between the results."""
    with redirect_stdout(sys.stderr), suppress(ModuleNotFoundError):
        importlib.import_module("airflow.sdk")


@contextmanager
def connections_of_airflow() -> Iterator[None]:
    """Let connections be found as Airflow's own commands find them, those in its database included."""
    before = os.environ.get(PROCESS_CONTEXT)
    os.environ[PROCESS_CONTEXT] = "server"
    try:
        with redirect_stdout(sys.stderr):  # Airflow's own warnings would stand between the results
            yield
    finally:
        del os.environ[PROCESS_CONTEXT]
        if before is not None:
            os.environ[PROCESS_CONTEXT] = before
