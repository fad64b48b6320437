"""The interface of a kind of store: its settings, how it is opened, and how a URL and a connection define it.

The package's own kinds are the modules of `stores.kinds`. Another distribution registers its kind as an entry point of
the group `airflow_provider_coordination.stores`, which refers to an instance of a subclass of `StoreKind`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Generic, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.registry import Registry
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.stores.connection_fields import ConnectionFields

DEFAULT_TABLE = "coordination_partition"
LOGIN = ("login", "password")
"""The fields of a connection besides its extra."""

S = TypeVar("S")


class StoreKind(ABC, Generic[S]):
    """One kind of store.

    Its settings are a frozen dataclass with fields that `read_settings` can read, because they are passed as JSON. If
    it has a field `table`, that is the name of the table, which a user may override on a command line.
    """

    settings: type[S]
    """The class of its settings."""
    is_shared: ClassVar[bool] = True
    """Whether several processes share the partitions, which tasks require."""

    @property
    def connection_fields(self) -> Sequence[str]:
        """The fields of a connection's extra that this kind has in addition to the common ones."""
        return [each.name for each in fields(self.settings) if each.name not in LOGIN]  # type: ignore[arg-type]

    @abstractmethod
    def open(self, settings: S, *, retry_deadline_seconds: float) -> CoordinationStore:
        """Return the store without connecting to it.

        :param retry_deadline_seconds: how long a call is retried after a transient failure.
        :raises ConfigurationError: if the settings are not valid.
        """

    def check(self, settings: S) -> None:
        """Check everything that can be checked without a connection to the store.

        :raises ConfigurationError: with the field, the value and the remedy.
        """

    def check_exists(self, settings: S) -> None:
        """Check that the store exists, if opening it would create an empty one.

        :raises ConfigurationError: if it does not exist.
        """

    def from_url(self, url: str, table: str | None) -> S:
        """Return the settings in a URL.

        :param url: a URL whose scheme is the name of this kind.
        :param table: the name of the table, if it is given separately.
        :raises ConfigurationError: if the URL contains no valid settings.
        """
        raise ConfigurationError(f"store URL {url.partition(':')[0]!r}: this kind of store has no URL; use --conn-id")

    def from_connection(self, connection: ConnectionFields) -> S:
        """Return the settings in a connection: each field by its name, with login and password if this kind has them.

        :raises ConfigurationError: with the connection, the field, the value and the remedy.
        """
        values = {name: connection.values[name] for name in self.connection_fields if name in connection.values}
        known = {each.name for each in fields(self.settings)}  # type: ignore[arg-type]
        for name, value in zip(LOGIN, (connection.login, connection.password), strict=True):
            if value and name not in known:
                raise ConfigurationError(f"{connection.name}: this kind of store has no {name}; leave it empty")
            if value:
                values[name] = value
        return read_settings(self.settings, connection.name, values, lenient=True)

    def secrets(self, settings: S) -> Iterable[str]:
        """Yield the secrets in the settings, in every form in which errors may contain them.

        Values with names such as `password` or `token`, and the passwords of URLs, are always hidden.
        """
        return ()


STORE_KINDS: Registry[StoreKind[Any]] = Registry(
    "store", "airflow_provider_coordination.stores.kinds.{name}:KIND", "airflow_provider_coordination.stores", StoreKind
)
"""The kinds of stores, by name."""
