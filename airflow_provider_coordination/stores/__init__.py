"""The stores of partitions: which kind of store, and how to reach it. A kind is imported only when it is used."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.stores.history_recording import RecordingStore
from airflow_provider_coordination.stores.kind import STORE_KINDS, StoreKind

RETRY_DEADLINE_SECONDS = 15.0
"""How long a call to a store is retried after a transient failure."""
DEFAULT_KIND = "sql"
DEFAULT_HISTORY_DAYS = 7.0
MAX_HISTORY_DAYS = 365.0


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """The kind of a store, and how to reach it.

    :param kind: the kind of store, such as `sql` or `dynamodb`.
    :param settings: the settings of the kind, a JSON object. They may contain secrets and are never shown.
    :param implementation: `module:attribute` of a kind from another distribution, for processes that see no entry
        points; None otherwise.
    :param history_days: how many days the history of the partitions' owners is kept; 0 for no history.
    """

    kind: str = DEFAULT_KIND
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    implementation: str | None = None
    history_days: float = DEFAULT_HISTORY_DAYS

    def __hash__(self) -> int:
        return hash((self.kind, self.implementation, self.history_days, str(sorted(self.settings.items()))))

    @classmethod
    def of(cls, kind: str, own: object, *, history_days: float = DEFAULT_HISTORY_DAYS) -> StoreSettings:
        """Return the settings of a store in the form that is passed to Spark.

        :param kind: the kind of store.
        :param own: the settings of the kind, an object of its `StoreKind.settings`.
        :param history_days: how many days the history is kept.
        :raises ConfigurationError: if no distribution registered the kind, or more than one did.
        """
        implementation = STORE_KINDS.implementation(kind)
        return cls(kind=kind, settings=write_settings(own), implementation=implementation, history_days=history_days)

    @classmethod
    def from_url(cls, url: str, table: str | None = None) -> StoreSettings:
        """Return the settings of the store in a URL.

        A URL does not contain the history setting, so the history is kept long enough for any other process.

        :param url: a URL whose scheme is a kind, such as `dynamodb://<table>`, or an SQLAlchemy URL.
        :param table: the name of the table, if the URL has none.
        :raises ConfigurationError: if the URL is neither.
        """
        scheme = url.partition(":")[0]
        kind = scheme if scheme in STORE_KINDS.names() else DEFAULT_KIND
        return cls.of(kind, STORE_KINDS.load(kind).from_url(url, table), history_days=MAX_HISTORY_DAYS)

    @property
    def loaded_kind(self) -> StoreKind[Any]:
        """The imported kind of store.

        :raises ConfigurationError: if it does not exist or cannot be imported.
        """
        return STORE_KINDS.load(self.kind, self.implementation)

    @cached_property
    def own(self) -> Any:
        """The settings of the kind, an object of its `StoreKind.settings`.

        :raises ConfigurationError: if they are not valid, or the kind cannot be imported.
        """
        return read_settings(self.loaded_kind.settings, f"store {self.kind!r}", self.settings)

    @property
    def table(self) -> str | None:
        """The name of the table; None for a kind of store without tables."""
        return getattr(self.own, "table", None)

    def with_table(self, table: str) -> StoreSettings:
        """Return the settings with another table.

        :raises ConfigurationError: for a kind of store without tables.
        """
        if not any(each.name == "table" for each in fields(self.own)):
            raise ConfigurationError(f"store {self.kind!r} has no table; omit {table!r}")
        return replace(self, settings=write_settings(replace(self.own, table=table)))

    def check(self) -> None:
        """Check everything that can be checked without a connection to the store.

        :raises ConfigurationError: with the field, the value and the remedy.
        """
        self.loaded_kind.check(self.own)
        if not 0 <= self.history_days <= MAX_HISTORY_DAYS:
            raise ConfigurationError(
                f"store {self.kind!r}: field 'history_days' must be a number of days from 0, for no history, to "
                f"{MAX_HISTORY_DAYS:g}; got {self.history_days!r}"
            )


def open_store(settings: StoreSettings, *, retry_deadline_seconds: float = RETRY_DEADLINE_SECONDS) -> CoordinationStore:
    """Return the store for these settings, without connecting to it.

    :param settings: the settings of the store.
    :param retry_deadline_seconds: how long a call is retried after a transient failure.
    :raises ConfigurationError: if the settings are not valid.
    """
    settings.check()
    store = settings.loaded_kind.open(settings.own, retry_deadline_seconds=retry_deadline_seconds)
    if not settings.history_days:
        return store
    return RecordingStore(store, timedelta(days=settings.history_days))
