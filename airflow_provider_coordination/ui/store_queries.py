"""Queries to stores that many users send at once, without slowing down Airflow or each other.

A store stays open between requests. Queries run in threads of the plugin's own, a few for each connection. So they
never block the threads of Airflow's API server, and a store that hangs blocks no other connection. Identical queries
within a second run once, and slow queries run less often. An unavailable store is not queried for some seconds.
Identical requests share one response: its facts and its JSON are made once, in a thread of the plugin.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Annotated, Any, TypeVar, cast

from airflow.sdk import BaseHook
from fastapi import Depends, HTTPException, Request, Response
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from airflow_provider_coordination.airflow_names import AirflowNotFoundException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, connection_settings
from airflow_provider_coordination.stores import StoreSettings, open_store

# The name of a source may contain slashes, and a proxy may have decoded them.
SOURCE = "/connections/{connection_id}/sources/{source:path}"

_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


async def query_response(
    queries: QueryScheduler,
    connection_id: str,
    what: Hashable,
    query: Callable[[], object],
    *,
    cooldown: float = 1.0,
) -> Response:
    """Return the result of a query as JSON; see `QueryScheduler.read`."""
    return json_response(await queries.read(connection_id, what, lambda: json_text(query()), cooldown=cooldown))


def json_text(facts: object) -> bytes:
    """Return a dataclass as JSON."""
    kind = type(facts)
    adapter = _ADAPTERS.get(kind) or _ADAPTERS.setdefault(kind, TypeAdapter(kind))
    try:
        return adapter.dump_json(facts)
    except PydanticSerializationError:  # half a character, which JSON can spell and UTF-8 cannot
        return json.dumps(adapter.dump_python(facts, mode="json")).encode()


def json_response(text: bytes) -> Response:
    """Return JSON that no cache keeps, as the rights of a user may change."""
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})


THREADS = 4
"""How many queries of one connection run at once."""
RETRY_SECONDS = 2.0
"""How long a call to a store is retried. It is short, as a user waits for the result."""
UNAVAILABLE_SECONDS = 3.0
"""How long an unavailable store is not queried again."""
FRESH_SECONDS = 1.0
"""How long a result is reused for identical queries, at least."""
SIMILAR_QUERIES_PER_SECOND = 25
"""About how many similar queries run in a second. If there are more, each result is reused for longer."""
EXPENSIVE = 10.0
"""The cooldown of an expensive query: it runs again after this many times its last duration."""
RESPONSE_SECONDS = 10.0
"""How long a request waits for a result. A later result is kept for the next request."""
ACTION_SECONDS = 60.0
"""How long a request waits for an action."""
CONNECTION_SECONDS = 10.0
"""How long the settings of a connection are cached."""

T = TypeVar("T")


class _InitializedOnce:
    """A store that is initialized once, however often `initialize` is called."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store
        self._is_ready = False

    def initialize(self) -> None:
        """Initialize the store unless that was done before."""
        if not self._is_ready:
            self._store.initialize()
            self._is_ready = True

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the store."""
        return getattr(self._store, name)


@dataclass
class _OpenStore:
    store: CoordinationStore
    unavailable_until: float = 0.0
    unavailable_reason: str = ""


class Stores:
    """The stores of coordination connections, each opened once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[str, tuple[float, ConnectionSettings]] = {}
        self._open: dict[StoreSettings, _OpenStore] = {}

    def settings(self, connection_id: str) -> ConnectionSettings:
        """Return the settings of a connection.

        :raises HTTPException: if the connection is not defined.
        :raises ConfigurationError: if it is not of type `coordination`, or not usable.
        """
        if (known := self.cached_settings(connection_id)) is not None:
            return known
        try:
            settings = connection_settings(BaseHook.get_connection(connection_id))
        except AirflowNotFoundException:
            self._forget(connection_id)
            raise HTTPException(404, f"connection {connection_id!r} is not defined") from None
        except ConfigurationError:
            self._forget(connection_id)
            raise
        with self._lock:
            previous = self._connections.get(connection_id)
            self._connections[connection_id] = (time.monotonic(), settings)
            if previous is not None and previous[1].store != settings.store:
                self._close_unused()
        return settings

    def cached_settings(self, connection_id: str) -> ConnectionSettings | None:
        """Return the settings of a connection if they were read some seconds ago; else None."""
        known = self._connections.get(connection_id)
        return known[1] if known is not None and time.monotonic() - known[0] < CONNECTION_SECONDS else None

    def query(self, settings: StoreSettings, query: Callable[[CoordinationStore], T]) -> T:
        """Run a query on a store, unless the store was unavailable some seconds ago.

        :raises StoreUnavailableError: if the store is unavailable, or was.
        """
        opened = self._opened(settings)
        if time.monotonic() < opened.unavailable_until:
            raise StoreUnavailableError(opened.unavailable_reason)
        try:
            opened.store.initialize()
            return query(opened.store)
        except StoreUnavailableError as error:
            opened.unavailable_reason = str(error)
            opened.unavailable_until = time.monotonic() + UNAVAILABLE_SECONDS
            raise

    def query_source(self, connection_id: str, source: str, query: Callable[[SourceView], T]) -> T:
        """Run a query on the view of a source."""
        settings = self.settings(connection_id)
        return self.query(settings.store, lambda store: query(settings.view(source, store=store)))

    def change_source(self, connection_id: str, source: str, action: Callable[[SourceCoordinator], T]) -> T:
        """Run an action with a coordinator of a source. The coordinator's owner is no worker."""
        settings = self.settings(connection_id)
        owner = f"{socket.gethostname()}:http:{token_hex(4)}"
        return self.query(settings.store, lambda store: action(settings.coordinator(source, owner, store=store)))

    def close(self) -> None:
        """Close all stores, and forget the settings of the connections."""
        with self._lock:
            self._connections.clear()
            self._close_unused()

    def _forget(self, connection_id: str) -> None:
        """Forget a connection that is no longer usable, and close its store."""
        with self._lock:
            if self._connections.pop(connection_id, None) is not None:
                self._close_unused()

    def _opened(self, settings: StoreSettings) -> _OpenStore:
        with self._lock:
            if settings not in self._open:
                store = open_store(settings, retry_deadline_seconds=RETRY_SECONDS)
                self._open[settings] = _OpenStore(cast(CoordinationStore, _InitializedOnce(store)))
            return self._open[settings]

    def _close_unused(self) -> None:
        used = {settings.store for _, settings in self._connections.values()}
        for settings in [settings for settings in self._open if settings not in used]:
            self._open.pop(settings).store.close()


@dataclass
class _CachedQuery:
    future: Future[Any]
    survives_actions: bool
    cooldown: float
    fresh_seconds: float
    asked_at: float = field(default_factory=time.monotonic)
    arrived_at: float | None = None

    def __post_init__(self) -> None:
        self.future.add_done_callback(self._note_arrival)

    def is_kept(self, now: float) -> bool:
        return self.is_fresh(now, self.cooldown, self.fresh_seconds)

    def is_fresh(self, now: float, cooldown: float, fresh_seconds: float) -> bool:
        if self.arrived_at is None:
            return True
        has_failed = self.future.cancelled() or self.future.exception() is not None
        took = 0.0 if has_failed else self.arrived_at - self.asked_at
        seconds = FRESH_SECONDS if has_failed else fresh_seconds
        return now - self.asked_at < seconds or now - self.arrived_at < cooldown * took

    def _note_arrival(self, future: Future[Any]) -> None:
        self.arrived_at = time.monotonic()


class QueryScheduler:
    """Runs the queries and actions of the routes, and shares results. Safe to use from several threads and event loops.

    :param stores: the stores.
    """

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self._lock = threading.Lock()
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._cache: dict[tuple[str, Hashable], _CachedQuery] = {}
        self._latest: dict[tuple[str, Hashable], Any] = {}
        self._pruned_at = 0.0

    async def read(
        self,
        connection_id: str,
        what: Hashable,
        query: Callable[[], T],
        *,
        cooldown: float = 1.0,
        similar: int = 1,
        survives_actions: bool = False,
        seconds: float | None = None,
    ) -> T:
        """Return the result of a query, or of an identical query that ran a moment ago.

        :param connection_id: the connection whose threads run the query; empty for queries of no connection.
        :param what: identifies the query among those of the connection.
        :param query: reads the stores; runs in a thread.
        :param cooldown: how many times its last duration passes before the query runs again.
        :param similar: how many similar queries run repeatedly together with this one.
        :param survives_actions: whether the result stays valid after any action of these routes.
        :param seconds: how long the result is waited for; a later one is kept. `RESPONSE_SECONDS` by default.
        :raises HTTPException: if the connection is not defined.
        :raises ConfigurationError: if it is not of type `coordination`, or not usable.
        :raises StoreUnavailableError: if the store is unavailable, or the query takes longer than `seconds`.
        """
        await self._check_connection(connection_id)
        fresh_seconds = FRESH_SECONDS * max(1.0, similar / SIMILAR_QUERIES_PER_SECOND)
        with self._lock:
            now = time.monotonic()
            cached = self._cache.get((connection_id, what))
            if cached is None or not cached.is_fresh(now, cooldown, fresh_seconds):
                self._prune(now)
                cached = _CachedQuery(self._submit(connection_id, query), survives_actions, cooldown, fresh_seconds)
                self._cache[connection_id, what] = cached
        found: T = await _wait(RESPONSE_SECONDS if seconds is None else seconds, cached.future)
        return found

    async def read_latest(
        self, connection_id: str, what: Hashable, query: Callable[[], T], *, cooldown: float, seconds: float
    ) -> T | None:
        """Return the result of a query that may take long and survives actions; see `read`.

        If there is none within `seconds`, return the one that this method returned last, and None before the first.
        """
        with suppress(StoreUnavailableError):
            self._latest[connection_id, what] = await self.read(
                connection_id, what, query, cooldown=cooldown, survives_actions=True, seconds=seconds
            )
        return cast("T | None", self._latest.get((connection_id, what)))

    async def run_action(self, connection_id: str, action: Callable[[], T]) -> T:
        """Run an action, and drop the cached results of its connection afterwards.

        The action completes even if its request is cancelled.
        """
        await self._check_connection(connection_id)
        with self._lock:
            done = self._submit(connection_id, action)
        done.add_done_callback(lambda _: self._forget(connection_id))
        return await _wait(ACTION_SECONDS, done)

    async def run(self, work: Callable[[], T]) -> T:
        """Run in a thread what uses no store and may take a moment."""
        with self._lock:
            done = self._submit("", work)
        return await _wait(RESPONSE_SECONDS, done)

    def close(self) -> None:
        """Close the stores and end the threads."""
        with self._lock:
            for threads in self._threads.values():
                threads.shutdown(wait=False, cancel_futures=True)
            self._threads.clear()
            self._cache.clear()
            self._latest.clear()
        self.stores.close()

    async def _check_connection(self, connection_id: str) -> None:
        """Check that a connection exists before it gets threads of its own."""
        if connection_id and self.stores.cached_settings(connection_id) is None:
            with self._lock:
                settings = self._submit("", lambda: self.stores.settings(connection_id))
            await _wait(RESPONSE_SECONDS, settings)

    def _prune(self, now: float) -> None:
        """Drop old results, at most once in `FRESH_SECONDS`: each check reads all of them."""
        if now - self._pruned_at >= FRESH_SECONDS:
            self._cache = {key: cached for key, cached in self._cache.items() if cached.is_kept(now)}
            self._pruned_at = now

    def _submit(self, connection_id: str, task: Callable[[], T]) -> Future[T]:
        if connection_id not in self._threads:
            self._threads[connection_id] = ThreadPoolExecutor(THREADS, thread_name_prefix="coordination-ui")
        return self._threads[connection_id].submit(task)

    def _forget(self, connection_id: str) -> None:
        with self._lock:
            self._cache = {
                key: cached for key, cached in self._cache.items() if key[0] != connection_id or cached.survives_actions
            }


async def _wait(seconds: float, future: Future[T]) -> T:
    """Wait for a result that other requests may wait for too: cancelling this request does not cancel it."""
    waiting = asyncio.shield(asyncio.wrap_future(future))
    try:
        done, _ = await asyncio.wait([waiting], timeout=seconds)
    finally:
        if not waiting.done():
            waiting.cancel()
    if not done:
        raise StoreUnavailableError(f"no response within {seconds:g} s")
    return waiting.result()


async def query_scheduler(request: Request) -> QueryScheduler:
    """Return the query scheduler of the application that received a request."""
    queries: QueryScheduler = request.app.state.queries
    return queries


Queries = Annotated[QueryScheduler, Depends(query_scheduler)]
