"""Stores in a table of an SQL database."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores.connection_fields import ConnectionFields
from airflow_provider_coordination.stores.kind import DEFAULT_TABLE, StoreKind


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
    """See `SqlStore`."""

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

    def check_exists(self, settings: SqlSettings) -> None:
        """Check that the file of an SQLite store exists; see `StoreKind.check_exists`."""
        import sqlalchemy as sa

        from airflow_provider_coordination.stores.sqlite_file import sqlite_path

        with suppress(sa.exc.ArgumentError, ValueError):
            url = sa.make_url(settings.url or "")
            if url.get_backend_name() == "sqlite":
                path = sqlite_path(url)
                if not path.exists():
                    raise ConfigurationError(
                        f"store file {str(path)!r} does not exist; check its path, or create it with init-store"
                    )

    def from_url(self, url: str, table: str | None) -> SqlSettings:
        """See `StoreKind.from_url`; the URL's scheme is a database's."""
        return SqlSettings(url=url, table=table or DEFAULT_TABLE)

    def from_connection(self, connection: ConnectionFields) -> SqlSettings:
        """Return the settings in a connection; its login and password override those in the URL.

        See `StoreKind.from_connection`.
        """
        return SqlSettings(url=_with_login(connection), table=connection.text("table") or DEFAULT_TABLE)

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
    import sqlalchemy as sa

    from airflow_provider_coordination.stores.sqlite_file import sqlite_path

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
