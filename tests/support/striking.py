"""Injects a fault into one call of a worker to a store, files, tables or catalogs; a successor continues its work."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol, cast
from unittest.mock import patch

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.spark.sinks.iceberg import catalog as catalogs
from airflow_provider_coordination.spark.sinks.iceberg import sink as sinks
from tests.support.counted_tables import counted_sinks
from tests.support.fleet import Crash
from tests.support.freezing import VICTIM, Calls, CountedClient, CountedStore, Strike, acting, counted_files

STRIKES = [
    Strike.FREEZE, Strike.KILLED_BEFORE, Strike.KILLED_AFTER, Strike.RAISED_BEFORE, Strike.RAISED_AFTER, Strike.TWICE
]  # fmt: skip
_counting: ContextVar[Calls | None] = ContextVar("counting", default=None)
SECONDS = 60.0
"""How long a victim may take to its point, or to its end."""


class StruckWork(Protocol):
    """The work of a job that is struck, and of its successor."""

    def by_victim(self) -> None:
        """Do what is struck."""
        ...

    def by_successor(self) -> None:
        """Go on."""
        ...


def counted_store(store: CoordinationStore) -> CoordinationStore:
    """Return a store of which every call of the victim counts; called by the victim."""
    calls = _counting.get()
    return store if calls is None else cast("CoordinationStore", CountedStore(store, calls))


def counted_client(client: Any, error: Exception) -> Any:
    """Return a client of a service of which every call of the victim counts; called by the victim.

    :param error: what a call raises that fails.
    """
    calls = _counting.get()
    return client if calls is None else CountedClient(client, calls, lambda: error)


def calls_of(work: StruckWork, object_store: str = "") -> list[str]:
    """Return the calls of a victim that is not struck, in order.

    :param object_store: see `counted_files`.
    """
    calls = Calls()
    with _counted(calls, object_store):
        contextvars.Context().run(_suffer, work, calls)
    return calls.made


def strike_at(
    point: int, strike: Strike, work: StruckWork, object_store: str = "", *, may_end_before: bool = False
) -> str:
    """Strike a victim, and let its successor go on: then, or while it is frozen.

    :param point: at which of its calls, from 1.
    :param object_store: see `counted_files`.
    :param may_end_before: whether the victim may make fewer calls: writers differ by a call for the same bytes.
    :returns: the call, and what it was struck by, for the text of an assertion.
    """
    calls = Calls(point, strike)
    with _counted(calls, object_store):
        victim = threading.Thread(target=contextvars.Context().run, args=(_suffer, work, calls))
        victim.start()
        if strike is Strike.FREEZE:
            while not calls.reached.wait(0.1) and victim.is_alive():
                pass
            assert calls.reached.is_set() or may_end_before, "the victim does not come there"
        else:
            victim.join(SECONDS)
        contextvars.Context().run(work.by_successor)
        calls.thawed.set()
        victim.join(SECONDS)
    assert (calls.struck or may_end_before) and not victim.is_alive()
    return f"{strike} at {point}: {calls.struck}"


def _suffer(work: StruckWork, calls: Calls) -> None:
    acting.set(VICTIM)
    _counting.set(calls)
    with suppress(Crash, CoordinationError, OSError):
        work.by_victim()


@contextmanager
def _counted(calls: Calls, object_store: str) -> Iterator[None]:
    """Let the calls count; nobody waits long for what the strikes let fail."""
    with (
        patch.object(catalogs, "RETRY_PAUSE_SECONDS", 0.001),
        patch.object(sinks, "CONFLICT_PAUSE_SECONDS", 0.001),
        counted_files(calls, object_store=object_store, published=lambda path: None),
        counted_sinks(calls),
    ):
        yield
