"""What a kind of store brings along: its settings, how a URL and a connection name it, and how it is opened.

The package's own are the modules of `stores.kinds`. Another distribution registers its own by an entry point of the
group `airflow_provider_coordination.stores`, which names an instance of a subclass of `StoreKind`.
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
"""Airflow's own fields of a connection, beside its extra."""

S = TypeVar("S")


class StoreKind(ABC, Generic[S]):
    """One kind of store.

    Its settings are a frozen dataclass whose fields `read_settings` can read, since they travel as JSON. A field
    `table`, if there is one, is what people call the table and may choose on a command line.
    """

    settings: type[S]
    """The class of its settings."""
    is_shared: ClassVar[bool] = True
    """Whether several processes see the same partitions, as tasks have to."""

    @property
    def connection_fields(self) -> Sequence[str]:
        """The fields of a connection's extra that this kind takes, beside those that every kind has."""
        return [each.name for each in fields(self.settings) if each.name not in LOGIN]  # type: ignore[arg-type]

    @abstractmethod
    def open(self, settings: S, *, retry_deadline_seconds: float) -> CoordinationStore:
        """Return the store; nothing is connected yet.

        :param retry_deadline_seconds: how long a call is tried again that failed for a reason that may pass.
        :raises ConfigurationError: if the settings are not usable.
        """

    def check(self, settings: S) -> None:
        """Check what can be checked without reaching the store.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """

    def check_exists(self, settings: S) -> None:
        """Check that the store is there, where opening it would make an empty one.

        :raises ConfigurationError: if it is not.
        """

    def from_url(self, url: str, table: str | None) -> S:
        """Return the settings that a URL names.

        :param url: its scheme is the name of this kind.
        :param table: the table's name, where it is given beside the URL.
        :raises ConfigurationError: if it names none.
        """
        raise ConfigurationError(f"store URL {url.partition(':')[0]!r}: this kind of store has no URL; use --conn-id")

    def from_connection(self, connection: ConnectionFields) -> S:
        """Return the settings that a connection says: each field by its name, login and password if there are such.

        :raises ConfigurationError: naming the connection, the field, the value and the remedy.
        """
        given = {name: connection.given[name] for name in self.connection_fields if name in connection.given}
        taken = {each.name for each in fields(self.settings)}  # type: ignore[arg-type]
        for name, value in zip(LOGIN, (connection.login, connection.password), strict=True):
            if value and name not in taken:
                raise ConfigurationError(f"{connection.name}: this kind of store has no {name}; leave it empty")
            if value:
                given[name] = value
        return read_settings(self.settings, connection.name, given, lenient=True)

    def secrets(self, settings: S) -> Iterable[str]:
        """Yield the secrets in the settings, in each way in which errors may spell them.

        What a name such as `password` or `token` calls a secret is known in any case, and so are the passwords of URLs.
        """
        return ()


STORE_KINDS: Registry[StoreKind[Any]] = Registry(
    "store", "airflow_provider_coordination.stores.kinds.{name}:KIND", "airflow_provider_coordination.stores", StoreKind
)
"""The kinds of stores, by name."""
