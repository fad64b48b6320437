"""One open store for all that watch it, and the few threads in which it is asked.

A store that hangs blocks its own threads and nobody else's; the event loop never waits for one.
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
"""Work that also asks a source has threads of its own: sources that hang shall not keep others from the store."""

T = TypeVar("T")


class SharedStore:
    """A store that is opened when it is first asked, and closed when its last user has left.

    :param settings: which store, and how to reach it.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._users = 0
        self._store: CoordinationStore | None = None
        self._opening = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS_PER_STORE, thread_name_prefix="coordination-watch")
        self._threads_for_sources = ThreadPoolExecutor(THREADS_FOR_SOURCES, thread_name_prefix="coordination-probe")

    def open(self) -> CoordinationStore:
        """Return the store, the same each time. To be called in one of the threads.

        :raises ConfigurationError: if the settings are not usable.
        """
        with self._opening:
            self._store = self._store or open_store(self._settings)
            return self._store

    async def run(self, work: Callable[[], T], *, asks_source: bool = False) -> T:
        """Do work that asks the store in one of the threads; return what it returns.

        :param asks_source: whether it may ask a source, too.
        """
        threads = self._threads_for_sources if asks_source else self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def enter(self) -> None:
        """Count a user in."""
        self._users += 1

    def leave(self) -> bool:
        """Count a user out; after the last one, close the store once the threads are done with it.

        :returns: whether this was the last one.
        """
        self._users -= 1
        if self._users:
            return False
        # Whatever is under way may take its time, and nobody waits for it: neither the loop nor the process's end.
        threading.Thread(target=self._close, name="coordination-watch-close", daemon=True).start()
        return True

    def _close(self) -> None:
        for threads in (self._threads, self._threads_for_sources):
            threads.shutdown(wait=True, cancel_futures=True)
        if self._store is not None:
            self._store.close()
