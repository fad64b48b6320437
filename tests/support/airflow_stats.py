"""Airflow's stats of this process, set up as each version of Airflow does it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

from airflow_provider_coordination.airflow_names import AIRFLOW as VERSION
from airflow_provider_coordination.airflow_names import NEW_PLACES_SINCE, Stats

MODULES = "airflow.sdk._shared.observability.metrics" if VERSION >= NEW_PLACES_SINCE else "airflow.metrics"


def set_stats(factory: Callable[[], Any]) -> None:
    """Let a function make the stats at their next use."""
    stats: Any = Stats
    if VERSION < NEW_PLACES_SINCE:
        stats.factory, stats.instance = factory, None
        return
    takes_legacy_names = "export_legacy_names" in signature(stats.initialize).parameters
    stats.initialize(factory=factory, **({"export_legacy_names": True} if takes_legacy_names else {}))


def set_no_stats() -> None:
    """Report nothing, as without a configuration."""
    set_stats(import_module(f"{MODULES}.base_stats_logger").NoStatsLogger)


def influxdb_stats(port: int) -> Any:
    """Return stats that go to a StatsD server on this machine, in the format of InfluxDB.

    :param port: the port of the server.
    """
    from statsd import StatsClient

    module = import_module(f"{MODULES}.statsd_logger")
    if VERSION < NEW_PLACES_SINCE:
        client = StatsClient(host="127.0.0.1", port=port, prefix="airflow")
        return module.SafeStatsdLogger(client, module.get_validator(), True)
    return module.get_statsd_logger(
        stats_class=StatsClient,
        host="127.0.0.1",
        port=port,
        prefix="airflow",
        influxdb_tags_enabled=True,
        statsd_influxdb_enabled=True,
    )
