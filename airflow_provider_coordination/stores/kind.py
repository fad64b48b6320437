"""The interface of a kind of store: its settings, how it is opened, and how a URL and a connection define it.

The package's own kinds are the modules of `stores.kinds`. Another distribution registers its kind as an entry point of
the group `airflow_provider_coordination.stores`, which refers to an instance of a subclass of `StoreKind`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from airflow_provider_coordination.aws import AwsSettings, Permission
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.registry import Registry
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.settings import read_field, read_settings

ROUND_TRIPS = 5

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class StoreReport:
    """The result of a check of a store.

    :param name: the name of the store, without a password.
    :param round_trip: the duration of the fastest request.
    :param server_time: the server's clock (aware) at its response; None if it has none.
    :param local_time: the local time at that moment.
    :param imprecision: how much the server's clock may have differed from `server_time`.
    :param schema: the version of the store's schema; 0 if there is no table yet.
    :param newest_schema: the newest version that this package knows.
    """

    name: str
    round_trip: timedelta
    server_time: datetime | None
    local_time: datetime
    imprecision: timedelta = timedelta()
    schema: int
    newest_schema: int

    @property
    def clock_difference(self) -> timedelta | None:
        """The minimum difference of the server's clock to the local one; negative if the server's clock is behind."""
        if self.server_time is None:
            return None
        difference = self.server_time - self.local_time
        minimum = max(abs(difference) - self.imprecision, timedelta())
        return minimum if difference > timedelta() else -minimum


def measure_quickest(request: Callable[[], T], now: Callable[[], datetime]) -> tuple[T, datetime, timedelta]:
    """Make a request a few times; return the fastest response, the local time in its middle, and its duration."""
    request()  # the first one connects
    tries = []
    for _ in range(ROUND_TRIPS):
        before = now()
        response = request()
        tries.append((now() - before, before, response))
    took, before, response = min(tries, key=lambda each: each[0])
    return response, before + took / 2, took


@dataclass(frozen=True, kw_only=True)
class ConnectionFields:
    """The fields of one connection.

    :param name: the connection's name in errors, such as `connection 'coordination_default'`.
    :param values: the fields of its extra, without null and empty ones.
    :param login: Airflow's own field; None if it is empty.
    :param password: Airflow's own field; None if it is empty.
    :param aws: returns the settings of an AWS connection, given its id, the service, and the region to use if it has
        none.
    """

    name: str
    values: Mapping[str, Any] = field(repr=False)
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    aws: Callable[[str, str, str | None], AwsSettings]

    def read(self, field: str, annotation: Any, default: Any = None) -> Any:
        """Return a field of the extra, converted to a type and checked.

        :param annotation: the type, with its limits; text may stand for a number, a duration and a boolean.
        :param default: the result if the field is not set.
        :raises FieldError: naming the connection, the field, the value and the remedy.
        """
        return read_field(self.name, field, self.values[field], annotation) if field in self.values else default

    def text(self, field: str) -> str | None:
        """Return a text field; None if it is not set.

        :raises FieldError: if it is not text.
        """
        text: str | None = self.read(field, str)
        return text


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

    def report(self, store: Any, now: Callable[[], datetime]) -> StoreReport | None:
        """Return the report of a store; create and change nothing.

        :param store: the store that `open` returned.
        :param now: returns the local time.
        :returns: None if such stores do not report their status.
        :raises ConfigurationError: if only a user can fix the problem.
        :raises StoreUnavailableError: if it is unavailable.
        """
        return None

    def permissions(self, store: Any) -> tuple[AwsSettings, Sequence[Permission]] | None:
        """Return the AWS settings and permissions that a store needs; None if it is not in AWS.

        :param store: the store that `open` returned.
        """
        return None

    def secrets(self, settings: S) -> Iterable[str]:
        """Yield the secrets in the settings, in every form in which errors may contain them.

        Values with names such as `password` or `token`, and the passwords of URLs, are always hidden.
        """
        return ()


STORE_KINDS: Registry[StoreKind[Any]] = Registry(
    "store", "airflow_provider_coordination.stores.kinds.{name}:KIND", "airflow_provider_coordination.stores", StoreKind
)
"""The kinds of stores, by name."""
