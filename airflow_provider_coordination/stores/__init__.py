"""Where partitions are kept: which kind of store, and how to reach it. A kind is imported only when it is used."""

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
"""How long a call to a store is tried again that failed for a reason that may pass."""
DEFAULT_KIND = "sql"
DEFAULT_HISTORY_DAYS = 7.0
MAX_HISTORY_DAYS = 365.0


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Which store, and how to reach it.

    :param kind: the kind of store, such as `sql` or `dynamodb`.
    :param settings: the kind's own, a JSON object; may hold secrets, and is never shown.
    :param implementation: `module:attribute` of a kind that is not this package's, for where no entry point is seen;
        None otherwise.
    :param history_days: how long it is kept who held which partition when; 0 for no history.
    """

    kind: str = DEFAULT_KIND
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    implementation: str | None = None
    history_days: float = DEFAULT_HISTORY_DAYS

    def __hash__(self) -> int:
        return hash((self.kind, self.implementation, self.history_days, str(sorted(self.settings.items()))))

    @classmethod
    def of(cls, kind: str, own: object, *, history_days: float = DEFAULT_HISTORY_DAYS) -> StoreSettings:
        """Return the settings of a store, as they travel to Spark.

        :param kind: the kind of store.
        :param own: the kind's own settings, an object of its `StoreKind.settings`.
        :raises ConfigurationError: if nobody registered the kind, or more than one did.
        """
        implementation = STORE_KINDS.implementation(kind)
        return cls(kind=kind, settings=write_settings(own), implementation=implementation, history_days=history_days)

    @classmethod
    def from_url(cls, url: str, table: str | None = None) -> StoreSettings:
        """Return the settings of the store that a URL names.

        How long others keep the history a URL does not say: nothing of it is deleted that they may want.

        :param url: one whose scheme is a kind, such as `dynamodb://<table>`, or else an SQLAlchemy URL.
        :param table: the table's name, where the URL has none.
        :raises ConfigurationError: if it is neither.
        """
        scheme = url.partition(":")[0]
        kind = scheme if scheme in STORE_KINDS.names() else DEFAULT_KIND
        return cls.of(kind, STORE_KINDS.load(kind).from_url(url, table), history_days=MAX_HISTORY_DAYS)

    @property
    def implemented(self) -> StoreKind[Any]:
        """The kind of store, imported.

        :raises ConfigurationError: if there is none, or it cannot be imported.
        """
        return STORE_KINDS.load(self.kind, self.implementation)

    @cached_property
    def own(self) -> Any:
        """The kind's own settings, an object of its `StoreKind.settings`.

        :raises ConfigurationError: if they are not usable, or the kind cannot be imported.
        """
        return read_settings(self.implemented.settings, f"store {self.kind!r}", self.settings)

    @property
    def table(self) -> str | None:
        """The table's name; None for a kind of store without one."""
        return getattr(self.own, "table", None)

    def with_table(self, table: str) -> StoreSettings:
        """Return the settings with another table.

        :raises ConfigurationError: for a kind of store that has none.
        """
        if not any(each.name == "table" for each in fields(self.own)):
            raise ConfigurationError(f"store {self.kind!r} has no table; leave out {table!r}")
        return replace(self, settings=write_settings(replace(self.own, table=table)))

    def check(self) -> None:
        """Check what can be checked without reaching the store.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self.implemented.check(self.own)
        if not 0 <= self.history_days <= MAX_HISTORY_DAYS:
            raise ConfigurationError(
                f"store {self.kind!r}: field 'history_days' must be a number of days from 0, for no history, to "
                f"{MAX_HISTORY_DAYS:g}; got {self.history_days!r}"
            )


def open_store(settings: StoreSettings, *, retry_deadline_seconds: float = RETRY_DEADLINE_SECONDS) -> CoordinationStore:
    """Return the store that the settings name; nothing is connected yet.

    :param retry_deadline_seconds: how long a call is tried again that failed for a reason that may pass.
    :raises ConfigurationError: if the settings are not usable.
    """
    settings.check()
    store = settings.implemented.open(settings.own, retry_deadline_seconds=retry_deadline_seconds)
    if not settings.history_days:
        return store
    return RecordingStore(store, timedelta(days=settings.history_days))
