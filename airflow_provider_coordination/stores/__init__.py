"""Where partitions are kept: one module a store, chosen by name and imported only when used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.store import CoordinationStore


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Which store, and how to reach it.

    :param store: `sql` or `in_memory`.
    :param url: for `sql`, an SQLAlchemy URL such as `sqlite:////var/lib/coordination.db` or
        `postgresql://user:password@host/database`; never shown in logs.
    :param table: for `sql`, the table's name; created if absent.
    """

    store: str = "sql"
    url: str | None = field(default=None, repr=False)
    table: str = "coordination_partition"

    def check(self) -> None:
        """Check what can be checked without reaching the store.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        if self.store not in STORES:
            raise ConfigurationError(f"unknown store kind {self.store!r}; use one of {', '.join(sorted(STORES))}")
        if self.store == "sql" and not self.url:
            raise ConfigurationError(
                "store 'sql': field 'url' is missing; give an SQLAlchemy URL, "
                "for example sqlite:////var/lib/coordination.db or postgresql://user@host/database"
            )


def open_store(settings: StoreSettings) -> CoordinationStore:
    """Return the store that the settings name; nothing is connected yet.

    :raises ConfigurationError: if the settings are not usable.
    """
    settings.check()
    return STORES[settings.store](settings)


def _sql(settings: StoreSettings) -> CoordinationStore:
    from airflow_provider_coordination.stores.sql import SqlStore

    return SqlStore(settings.url or "", table=settings.table)


def _in_memory(settings: StoreSettings) -> CoordinationStore:
    from airflow_provider_coordination.stores.in_memory import InMemoryStore

    return InMemoryStore()


STORES: dict[str, Callable[[StoreSettings], CoordinationStore]] = {"sql": _sql, "in_memory": _in_memory}
