"""Where partitions are kept: one module or folder a store, chosen by name and imported only when used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores.recording import RecordingStore

RETRY_DEADLINE_SECONDS = 15.0
"""How long a call to a store is tried again that failed for a reason that may pass."""
DEFAULT_HISTORY_DAYS = 7.0
MAX_HISTORY_DAYS = 365.0


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """Which store, and how to reach it.

    :param store: `sql`, `dynamodb` or `in_memory`.
    :param url: for `sql`, an SQLAlchemy URL such as `sqlite:////var/lib/coordination.db` or
        `postgresql://user:password@host/database`; never shown in logs.
    :param table: for `sql` and `dynamodb`, the table's name; created if absent.
    :param aws: for `dynamodb`, where it is and who asks; `max_attempts` does not count.
    :param skip_table_creation: for `dynamodb`, only check the table, and create and change nothing.
    :param ttl_seconds: for `dynamodb`, how long completed partitions are kept; None for ever.
    :param read_capacity_units: for `dynamodb`, with `write_capacity_units`, what a table that is created provides, and
        its index as much; on-demand without.
    :param write_capacity_units: see `read_capacity_units`.
    :param history_days: how long it is kept who held which partition when; 0 for no history.
    """

    store: str = "sql"
    url: str | None = field(default=None, repr=False)
    table: str = "coordination_partition"
    aws: AwsSettings = field(default_factory=AwsSettings)
    skip_table_creation: bool = False
    ttl_seconds: int | None = None
    read_capacity_units: int | None = None
    write_capacity_units: int | None = None
    history_days: float = DEFAULT_HISTORY_DAYS

    @classmethod
    def from_url(cls, url: str, table: str | None = None) -> StoreSettings:
        """Return the settings of the store that a URL names.

        How long others keep the history a URL does not say: nothing of it is deleted that they may want.

        :param url: an SQLAlchemy URL, or `dynamodb://<table>` with `region`, `endpoint_url`, `role_arn` and
            `external_id` as its query, each optional.
        :param table: the table's name, where the URL has none.
        :raises ConfigurationError: if it is neither.
        """
        if not url.startswith("dynamodb:"):
            return cls(url=url, table=table or cls.table, history_days=MAX_HISTORY_DAYS)
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = [name for name in query if name not in URL_FIELDS]
        if unknown or parts.path.strip("/") or not url.startswith("dynamodb://"):
            raise ConfigurationError(
                f"store URL {url!r} is not usable: give dynamodb://<table>, with any of "
                f"{', '.join(URL_FIELDS)} as query, for example dynamodb://coordination_partition?region=eu-west-1"
            )
        if table and parts.netloc and table != parts.netloc:
            raise ConfigurationError(f"store URL {url!r} names another table than {table!r}; give one of the two")
        aws = AwsSettings(**{field: value or None for field, value in query.items()})  # type: ignore[arg-type]
        name = parts.netloc or table or cls.table
        return cls(store="dynamodb", aws=aws, table=name, history_days=MAX_HISTORY_DAYS)

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
        for name, store in FIELDS_OF_ONE_STORE.items():
            if self.store != store and getattr(self, name) != _default(name):
                raise ConfigurationError(
                    f"store {self.store!r}: field {name!r} is of the store {store!r}; remove it, or use that store"
                )
        for name in ("ttl_seconds", "read_capacity_units", "write_capacity_units"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigurationError(
                    f"store {self.store!r}: field {name!r} must be a whole number, at least 1; got {value!r}"
                )
        if not 0 <= self.history_days <= MAX_HISTORY_DAYS:
            raise ConfigurationError(
                f"store {self.store!r}: field 'history_days' must be a number of days from 0, for no history, to "
                f"{MAX_HISTORY_DAYS:g}; got {self.history_days!r}"
            )
        if (self.read_capacity_units is None) != (self.write_capacity_units is None):
            missing = "read_capacity_units" if self.read_capacity_units is None else "write_capacity_units"
            raise ConfigurationError(
                f"store {self.store!r}: field {missing!r} is missing; give both capacities, or neither for on-demand"
            )


URL_FIELDS = ("region", "endpoint_url", "role_arn", "external_id")
FIELDS_OF_ONE_STORE = {
    "url": "sql",
    "aws": "dynamodb",
    "skip_table_creation": "dynamodb",
    "ttl_seconds": "dynamodb",
    "read_capacity_units": "dynamodb",
    "write_capacity_units": "dynamodb",
}


def open_store(settings: StoreSettings, *, retry_deadline_seconds: float = RETRY_DEADLINE_SECONDS) -> CoordinationStore:
    """Return the store that the settings name; nothing is connected yet.

    :param retry_deadline_seconds: how long a call is tried again that failed for a reason that may pass.
    :raises ConfigurationError: if the settings are not usable.
    """
    settings.check()
    store = STORES[settings.store](settings, retry_deadline_seconds)
    if not settings.history_days:
        return store
    return RecordingStore(store, timedelta(days=settings.history_days))


def _sql(settings: StoreSettings, retry_deadline_seconds: float) -> CoordinationStore:
    from airflow_provider_coordination.stores.sql import SqlStore

    return SqlStore(settings.url or "", table=settings.table, retry_deadline_seconds=retry_deadline_seconds)


def _in_memory(settings: StoreSettings, retry_deadline_seconds: float) -> CoordinationStore:
    from airflow_provider_coordination.stores.in_memory import InMemoryStore

    return InMemoryStore()


def _dynamodb(settings: StoreSettings, retry_deadline_seconds: float) -> CoordinationStore:
    from airflow_provider_coordination.stores.dynamodb.store import DynamoDbStore
    from airflow_provider_coordination.stores.dynamodb.table import TableOptions

    capacity = (settings.read_capacity_units, settings.write_capacity_units)
    return DynamoDbStore(
        settings.aws,
        table=settings.table,
        options=TableOptions(
            skip_creation=settings.skip_table_creation,
            capacity=None if None in capacity else capacity,  # type: ignore[arg-type]
        ),
        ttl_seconds=settings.ttl_seconds,
        retry_deadline_seconds=retry_deadline_seconds,
    )


def _default(name: str) -> Any:
    (found,) = (each for each in fields(StoreSettings) if each.name == name)
    return found.default_factory() if found.default_factory is not MISSING else found.default


STORES: dict[str, Callable[[StoreSettings, float], CoordinationStore]] = {
    "sql": _sql,
    "dynamodb": _dynamodb,
    "in_memory": _in_memory,
}
