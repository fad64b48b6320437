"""One open store for all pollers of it, and the few threads that query it.

A store that hangs blocks only its own threads; the event loop never waits for a store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores import StoreSettings, open_store

THREADS_PER_STORE = 4
THREADS_FOR_SOURCES = 16
"""Work that also queries a source has its own threads, so that sources that hang do not block access to the store."""
CLOSING = "coordination-watch-close"
"""The name of the thread that waits until all work with a store is over, and closes it."""

T = TypeVar("T")


class SharedStore:
    """A store that is opened at its first use, and closed after its last user has left.

    :param settings: the settings of the store.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._users = 0
        self._store: CoordinationStore | None = None
        self._opening = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS_PER_STORE, thread_name_prefix="coordination-watch")
        self._threads_for_sources = ThreadPoolExecutor(THREADS_FOR_SOURCES, thread_name_prefix="coordination-probe")

    def open(self) -> CoordinationStore:
        """Return the store, the same each time. Call it only in one of the threads.

        :raises ConfigurationError: if the settings are not usable.
        """
        with self._opening:
            self._store = self._store or open_store(self._settings)
            return self._store

    async def run(self, work: Callable[[], T], *, queries_source: bool = False) -> T:
        """Run work that queries the store in one of the threads; return its result.

        :param queries_source: whether the work may also query a source.
        """
        threads = self._threads_for_sources if queries_source else self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def enter(self) -> None:
        """Add a user."""
        self._users += 1

    def leave(self) -> bool:
        """Remove a user; after the last one, close the store once its threads have finished.

        :returns: whether this was the last user.
        """
        self._users -= 1
        if self._users:
            return False
        # Work in progress may take its time: neither the event loop nor the end of the process waits for it.
        threading.Thread(target=self._close, name=CLOSING, daemon=True).start()
        return True

    def _close(self) -> None:
        for threads in (self._threads, self._threads_for_sources):
            threads.shutdown(wait=True, cancel_futures=True)
        if self._store is not None:
            self._store.close()
