"""Stores in a table of an SQL database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores.kind import DEFAULT_TABLE, ConnectionFields, StoreKind, StoreReport

if TYPE_CHECKING:
    from airflow_provider_coordination.stores.sql import SqlStore


@dataclass(frozen=True, kw_only=True)
class SqlSettings:
    """The table, and how to reach it.

    :param url: an SQLAlchemy URL such as `sqlite:////var/lib/coordination.db` or
        `postgresql://user:password@host/database`; never shown in logs.
    :param table: the name of the table, which is created if it does not exist.
    """

    url: str | None = field(default=None, repr=False)
    table: str = DEFAULT_TABLE


class SqlKind(StoreKind[SqlSettings]):
    """The kind of `SqlStore`."""

    settings = SqlSettings

    @override
    def open(self, settings: SqlSettings, *, retry_deadline_seconds: float) -> CoordinationStore:
        from airflow_provider_coordination.stores.sql import SqlStore

        return SqlStore(settings.url or "", table=settings.table, retry_deadline_seconds=retry_deadline_seconds)

    @override
    def check(self, settings: SqlSettings) -> None:
        if not settings.url:
            raise ConfigurationError(
                "store 'sql': field 'url' is missing; give an SQLAlchemy URL, "
                "for example sqlite:////var/lib/coordination.db or postgresql://user@host/database"
            )

    @override
    def check_exists(self, settings: SqlSettings) -> None:
        import sqlalchemy as sa

        from airflow_provider_coordination.stores.sql_database import sqlite_path

        with suppress(sa.exc.ArgumentError, ValueError):
            url = sa.make_url(settings.url or "")
            if url.get_backend_name() == "sqlite":
                path = sqlite_path(url)
                if not path.exists():
                    raise ConfigurationError(
                        f"store file {str(path)!r} does not exist; check its path, or create it with init-store"
                    )

    @override
    def from_url(self, url: str, table: str | None) -> SqlSettings:
        return SqlSettings(url=url, table=table or DEFAULT_TABLE)

    @override
    def from_connection(self, connection: ConnectionFields) -> SqlSettings:
        return SqlSettings(url=_with_login(connection), table=connection.text("table") or DEFAULT_TABLE)

    @override
    def report(self, store: SqlStore, now: Callable[[], datetime]) -> StoreReport:
        return store.report(now)

    @override
    def secrets(self, settings: SqlSettings) -> Iterable[str]:
        if settings.url is None:
            return
        import sqlalchemy as sa

        with suppress(sa.exc.ArgumentError, ValueError):
            url = sa.make_url(settings.url)
            if url.password:
                spelled = re.search(r"://[^:/@]*:(.*)@", url.render_as_string(hide_password=False))
                original = re.search(r"://[^:/@]*:(.*)@", settings.url)
                for secret in (str(url.password), *(match[1] for match in (spelled, original) if match)):
                    yield secret
                    # An @ that is not encoded as %40 makes drivers take the rest of a password for the host.
                    yield from secret.split("@")
            for name, values in url.query.items():
                if "password" in name.lower():
                    yield from (values,) if isinstance(values, str) else values


def _with_login(connection: ConnectionFields) -> str | None:
    """Return the URL; the connection's login and password override those in it."""
    import sqlalchemy as sa

    from airflow_provider_coordination.stores.sql_database import sqlite_path

    url = connection.text("url")
    if url is None:
        return None
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # ValueError: the port is not a number
        raise ConfigurationError(
            f"{connection.name}: field 'url' is not an SQLAlchemy URL; "
            "give, for example, sqlite:////var/lib/coordination.db or postgresql://host/database"
        ) from None
    is_sqlite = parsed.get_backend_name() == "sqlite"
    if is_sqlite:
        try:
            sqlite_path(parsed)
        except ConfigurationError as error:
            raise ConfigurationError(f"{connection.name}: {error}") from None
    if not connection.login and not connection.password:
        return url
    if is_sqlite:
        raise ConfigurationError(f"{connection.name}: SQLite has no users; leave login and password empty")
    return parsed.set(
        username=connection.login or parsed.username, password=connection.password or parsed.password
    ).render_as_string(hide_password=False)


KIND = SqlKind()
