"""Questions to stores that many people ask at once, so that nobody's question disturbs Airflow, or anybody else's.

A store stays open between requests. It is asked in threads of our own, a few for each connection: those of the API
server are Airflow's, and a store that hangs keeps nobody from another one. What several ask within a second is asked
once, and what takes long is asked less often. A store that is away is not asked again for some seconds.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Annotated, Any, TypeVar, cast

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import Depends, HTTPException, Request

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, connection_settings
from airflow_provider_coordination.stores import StoreSettings, open_store

THREADS = 4
"""So many questions are asked at once about one connection."""
PATIENCE_SECONDS = 2.0
"""So long a call to a store is tried again: a person waits for it."""
AWAY_SECONDS = 3.0
"""So long a store that did not answer is not asked again."""
FRESH_SECONDS = 1.0
"""So long an answer is given to others who ask the same, at least."""
ALIKE_A_SECOND = 25
"""So many questions of one kind are asked in a second, about: of more, each answer is given for longer."""
DEAR = 10.0
"""A question that may be dear is not asked again for this many times as long as its answer took."""
ANSWER_SECONDS = 10.0
"""So long somebody waits for an answer; one that takes longer is there for who asks later."""
ACTION_SECONDS = 60.0
CONNECTION_SECONDS = 10.0
"""So long it is remembered what a connection says."""

T = TypeVar("T")


class _Ready:
    """A store that is made ready once, however often that is asked for."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store
        self._is_ready = False

    def initialize(self) -> None:
        """See `CoordinationStore.initialize`."""
        if not self._is_ready:
            self._store.initialize()
            self._is_ready = True

    def __getattr__(self, name: str) -> Any:
        """Return what the store itself has."""
        return getattr(self._store, name)


@dataclass
class _Open:
    store: CoordinationStore
    away_until: float = 0.0
    away_because: str = ""


class Stores:
    """The stores of coordination connections, each opened once. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[str, tuple[float, ConnectionSettings]] = {}
        self._open: dict[StoreSettings, _Open] = {}

    def settings(self, connection_id: str) -> ConnectionSettings:
        """Return what a connection says.

        :raises HTTPException: if it is not defined.
        :raises ConfigurationError: if it is none of type `coordination`, or not usable.
        """
        if (known := self.remembered(connection_id)) is not None:
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
            former = self._connections.get(connection_id)
            self._connections[connection_id] = (time.monotonic(), settings)
            if former is not None and former[1].store != settings.store:
                self._close_unused()
        return settings

    def remembered(self, connection_id: str) -> ConnectionSettings | None:
        """Return what a connection said some seconds ago; None if nobody asked since."""
        known = self._connections.get(connection_id)
        return known[1] if known is not None and time.monotonic() - known[0] < CONNECTION_SECONDS else None

    def ask(self, settings: StoreSettings, question: Callable[[CoordinationStore], T]) -> T:
        """Ask a store; one that did not answer some seconds ago is not asked.

        :raises StoreUnavailableError: if it does not answer, or did not.
        """
        opened = self._opened(settings)
        if time.monotonic() < opened.away_until:
            raise StoreUnavailableError(opened.away_because)
        try:
            opened.store.initialize()
            return question(opened.store)
        except StoreUnavailableError as error:
            opened.away_because = str(error)
            opened.away_until = time.monotonic() + AWAY_SECONDS
            raise

    def ask_source(self, connection_id: str, source: str, question: Callable[[SourceView], T]) -> T:
        """Ask about a source; give the question a view of it."""
        settings = self.settings(connection_id)
        return self.ask(settings.store, lambda store: question(settings.view(source, store=store)))

    def act_on_source(self, connection_id: str, source: str, action: Callable[[SourceCoordinator], T]) -> T:
        """Change something about a source; give the action a coordinator of it, whose owner is nobody's worker."""
        settings = self.settings(connection_id)
        owner = f"{socket.gethostname()}:http:{token_hex(4)}"
        return self.ask(settings.store, lambda store: action(settings.coordinator(source, owner, store=store)))

    def close(self) -> None:
        """Close all stores, and forget what the connections say."""
        with self._lock:
            self._connections.clear()
            self._close_unused()

    def _forget(self, connection_id: str) -> None:
        """Forget a connection that is none any more, and close its store."""
        with self._lock:
            if self._connections.pop(connection_id, None) is not None:
                self._close_unused()

    def _opened(self, settings: StoreSettings) -> _Open:
        with self._lock:
            if settings not in self._open:
                store = open_store(settings, retry_deadline_seconds=PATIENCE_SECONDS)
                self._open[settings] = _Open(cast(CoordinationStore, _Ready(store)))
            return self._open[settings]

    def _close_unused(self) -> None:
        used = {settings.store for _, settings in self._connections.values()}
        for settings in [settings for settings in self._open if settings not in used]:
            self._open.pop(settings).store.close()


@dataclass
class _Answer:
    future: Future[Any]
    is_lasting: bool
    rest: float
    fresh_seconds: float
    asked_at: float = field(default_factory=time.monotonic)
    came_at: float | None = None

    def __post_init__(self) -> None:
        self.future.add_done_callback(self._came)

    def is_kept(self, now: float) -> bool:
        return self.is_fresh(now, self.rest, self.fresh_seconds)

    def is_fresh(self, now: float, rest: float, fresh_seconds: float) -> bool:
        if self.came_at is None:
            return True
        has_failed = self.future.cancelled() or self.future.exception() is not None
        took = 0.0 if has_failed else self.came_at - self.asked_at
        seconds = FRESH_SECONDS if has_failed else fresh_seconds
        return now - self.asked_at < seconds or now - self.came_at < rest * took

    def _came(self, future: Future[Any]) -> None:
        self.came_at = time.monotonic()


class Desk:
    """Where the routes ask. Safe to use from several threads, and event loops.

    :param stores: what is asked.
    """

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self._lock = threading.Lock()
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._answers: dict[tuple[str, Hashable], _Answer] = {}
        self._pruned_at = 0.0

    async def look(
        self,
        connection_id: str,
        what: Hashable,
        question: Callable[[], T],
        *,
        rest: float = 1.0,
        among: int = 1,
        is_lasting: bool = False,
    ) -> T:
        """Return the answer to a question, or the one that somebody got to the same a moment ago.

        :param connection_id: whose threads are used; empty for what concerns no connection.
        :param what: tells this question from others about the connection.
        :param question: asks the stores; runs in a thread.
        :param rest: it is not asked again for so many times as long as the answer took.
        :param among: how many questions like it are asked together, again and again.
        :param is_lasting: whether no action here changes the answer.
        :raises HTTPException: if the connection is not defined.
        :raises ConfigurationError: if it is none of type `coordination`, or not usable.
        :raises StoreUnavailableError: also if the answer takes longer than anybody waits.
        """
        await self._know(connection_id)
        fresh_seconds = FRESH_SECONDS * max(1.0, among / ALIKE_A_SECOND)
        with self._lock:
            now = time.monotonic()
            answer = self._answers.get((connection_id, what))
            if answer is None or not answer.is_fresh(now, rest, fresh_seconds):
                self._prune(now)
                answer = _Answer(self._submitted(connection_id, question), is_lasting, rest, fresh_seconds)
                self._answers[connection_id, what] = answer
        found: T = await _within(ANSWER_SECONDS, answer.future)
        return found

    async def act(self, connection_id: str, action: Callable[[], T]) -> T:
        """Do something; whatever is asked about the connection once it is done is asked anew.

        It is done even if nobody waits for it any more.
        """
        await self._know(connection_id)
        with self._lock:
            done = self._submitted(connection_id, action)
        done.add_done_callback(lambda _: self._forget(connection_id))
        return await _within(ACTION_SECONDS, done)

    async def aside(self, work: Callable[[], T]) -> T:
        """Do what concerns no store, and may take a moment, in a thread."""
        with self._lock:
            done = self._submitted("", work)
        return await _within(ANSWER_SECONDS, done)

    def close(self) -> None:
        """Close the stores and end the threads."""
        with self._lock:
            for threads in self._threads.values():
                threads.shutdown(wait=False, cancel_futures=True)
            self._threads.clear()
            self._answers.clear()
        self.stores.close()

    async def _know(self, connection_id: str) -> None:
        """Make sure that a connection is one, before it gets threads of its own."""
        if connection_id and self.stores.remembered(connection_id) is None:
            with self._lock:
                asked = self._submitted("", lambda: self.stores.settings(connection_id))
            await _within(ANSWER_SECONDS, asked)

    def _prune(self, now: float) -> None:
        """Let go of old answers, now and then: there may be many, and each has to be looked at."""
        if now - self._pruned_at >= FRESH_SECONDS:
            self._answers = {key: known for key, known in self._answers.items() if known.is_kept(now)}
            self._pruned_at = now

    def _submitted(self, connection_id: str, task: Callable[[], T]) -> Future[T]:
        if connection_id not in self._threads:
            self._threads[connection_id] = ThreadPoolExecutor(THREADS, thread_name_prefix="coordination-ui")
        return self._threads[connection_id].submit(task)

    def _forget(self, connection_id: str) -> None:
        with self._lock:
            self._answers = {
                key: known for key, known in self._answers.items() if key[0] != connection_id or known.is_lasting
            }


async def _within(seconds: float, future: Future[T]) -> T:
    """Wait for what others may wait for as well: it goes on if this one is cancelled."""
    waiting = asyncio.shield(asyncio.wrap_future(future))
    try:
        done, _ = await asyncio.wait([waiting], timeout=seconds)
    finally:
        if not waiting.done():
            waiting.cancel()
    if not done:
        raise StoreUnavailableError(f"no answer within {seconds:g} s")
    return waiting.result()


async def desk_of(request: Request) -> Desk:
    """Return the desk of the application that a request came to."""
    desk: Desk = request.app.state.desk
    return desk


AtDesk = Annotated[Desk, Depends(desk_of)]
