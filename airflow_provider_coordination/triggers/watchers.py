"""The watchers of a triggerer: one for each source of a store, shared by all triggers that wait for the source.

A watcher runs while triggers subscribe to it. It polls the source, notifies the subscriptions whose condition holds,
and sleeps until something is due, at most for a poll interval. Threads query the store, never the event loop. A store
that is unavailable is tried again with growing pauses, while the triggers continue to wait.

Connections are shared in the same way, and read again regularly. A changed connection is used at once. A connection
that is gone ends the waiting with a message, so that the task fails with it instead of waiting for its timeout.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import random
import secrets
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.hooks.configuration import DEFAULT_WATCH_INTERVAL_SECONDS, Configuration
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.job_resources import stop_job
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.triggers.conditions import Condition, SourceSnapshot, Wanted
from airflow_provider_coordination.triggers.polling import PollResult, SharedStore, SourcePoller

log = logging.getLogger(__name__)

T = TypeVar("T")

JUST_AFTER_SECONDS = 0.01
"""Timers are not exact: a poll shortly before something is due would find nothing."""


@dataclass(frozen=True, kw_only=True)
class PollPace:
    """How often things are done, in seconds.

    :param poll: the longest pause between two polls: with the poll itself, any change is noticed within five seconds.
    :param min_pause: the shortest pause between two polls, whatever is due and however many triggers subscribe.
    :param max_retry_pause: the longest pause while the store is unavailable.
    :param reread_interval: how often a connection is read again.
    :param retry_interval: how soon a connection that could not be read is tried again.
    :param gone_after: how long a connection must be unreadable before it counts as gone. Airflow reports a connection
        that is not defined and one that it currently cannot read in the same way.
    """

    poll: float = DEFAULT_WATCH_INTERVAL_SECONDS
    min_pause: float = 0.5
    max_retry_pause: float = 60.0
    reread_interval: float = 60.0
    retry_interval: float = 10.0
    gone_after: float = 30.0


class WatchError(Exception):
    """Waiting has become impossible; the message explains why, and what to do."""


class Subscription:
    """A trigger's subscription to a condition of a source.

    :param source: the source's name.
    :param condition: the condition that the trigger waits for.
    """

    def __init__(self, source: str, condition: Condition) -> None:
        self.source = source
        self.condition = condition
        self.is_armed = True
        self._watcher: _Watcher | None = None
        self._is_over = asyncio.Event()
        self._status = ""
        self._error: str | None = None

    async def met(self) -> str:
        """Wait until the condition holds; return the resulting status as one word.

        The condition is not checked again until `rearm` is called.

        :raises WatchError: if waiting has become impossible.
        """
        await self._is_over.wait()
        if self._error is not None:
            raise WatchError(self._error)
        return self._status

    def rearm(self) -> None:
        """Wait for the condition again."""
        self._is_over.clear()
        self.is_armed = True
        if self._watcher is not None:
            self._watcher.wake()

    # For watchers

    def check(self, snapshot: SourceSnapshot) -> None:
        """Notify the trigger if the condition holds."""
        if self.is_armed and (status := self.condition.met_by(snapshot)) is not None:
            self._status, self.is_armed = status, False
            self._is_over.set()

    def fail(self, message: str) -> None:
        """Notify the trigger that waiting has become impossible."""
        self._error, self.is_armed = message, False
        self._is_over.set()

    def watched_by(self, watcher: _Watcher | None) -> None:
        """Move from the current watcher, if any, to another one, or to none."""
        if watcher is not self._watcher:
            if self._watcher is not None:
                self._watcher.remove(self)
            self._watcher = watcher
            if watcher is not None:
                watcher.add(self)


class Watchers:
    """The watchers of one event loop, with the connections and stores that they share.

    :param pace: how often things are done.
    :param clock: the source of the time.
    """

    def __init__(self, pace: PollPace | None = None, clock: Clock | None = None) -> None:
        self.pace = pace or PollPace()
        self.clock = clock or SystemClock()
        self.owner = ":".join((socket.gethostname(), "triggerer", str(os.getpid()), secrets.token_hex(4)))
        self.connections: dict[str, _WatchedConnection] = {}
        self.sources: dict[tuple[ConnectionSettings, str], _Watcher] = {}
        self.stores: dict[StoreSettings, SharedStore] = {}
        self._under_way: set[asyncio.Task[Any]] = set()

    def subscribe(self, coordination_conn_id: str, source: str, condition: Condition) -> Subscription:
        """Subscribe to a condition; end the subscription with `unsubscribe`.

        :param coordination_conn_id: the connection of type `coordination`.
        :param source: the source's name.
        """
        subscription = Subscription(source, condition)
        connection = self.connections.get(coordination_conn_id)
        if connection is None:
            connection = self.connections[coordination_conn_id] = _WatchedConnection(self, coordination_conn_id)
        connection.add(subscription)
        return subscription

    def unsubscribe(self, coordination_conn_id: str, subscription: Subscription) -> None:
        """End a subscription, and what only it needed; harmless if it has ended already."""
        subscription.watched_by(None)
        connection = self.connections.get(coordination_conn_id)
        if connection is not None and connection.remove(subscription):
            del self.connections[coordination_conn_id]

    async def give_back(self, coordination_conn_id: str, source: str, set_ids: list[str] | None, run: str) -> list[str]:
        """Release the leases of partitions that wait for acknowledgment sets; see `AcknowledgmentSets.give_back`.

        :param set_ids: the sets; None for the sets of the run.
        :param run: the run, as `run_name` names it.
        :returns: the partition keys.
        :raises CoordinationError: if the connection is not usable, or the store does not respond.
        """
        settings = await read_connection(coordination_conn_id)
        store = self.enter(settings.store)
        try:
            return await store.run(lambda: self._sets(settings, source, store).give_back(set_ids, run=run))
        finally:
            self.leave(settings.store)

    async def stop_job(
        self, coordination_conn_id: str, source: str, owner: str, reason: str, *, was_killed: bool
    ) -> None:
        """Stop a job; see `hooks.job_resources.stop_job`.

        :raises CoordinationError: if the connection is not usable, or the store does not respond.
        """
        settings = await read_connection(coordination_conn_id)
        store = self.enter(settings.store)
        try:
            await store.run(
                lambda: stop_job(self._sets(settings, source, store).coordinator, owner, reason, was_killed=was_killed)
            )
        finally:
            self.leave(settings.store)

    async def finish(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run work to its end, even if the caller is cancelled.

        A triggerer cancels a killed trigger again every second, and its `on_kill` with it.
        """
        task = _in_background(work, "finish")
        self._under_way.add(task)
        task.add_done_callback(self._handle_finished)
        return await asyncio.shield(task)

    def _handle_finished(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("the remaining work of a killed trigger failed: %s: %s", type(error).__name__, error)

    # For watchers

    def watcher(self, settings: ConnectionSettings, source: str) -> _Watcher:
        """Return the watcher of a source; create it if there is none."""
        key = (settings, source)
        if key not in self.sources:
            self.sources[key] = _Watcher(self, settings, source)
        return self.sources[key]

    def enter(self, settings: StoreSettings) -> SharedStore:
        """Return the store of these settings, with one more user."""
        if settings not in self.stores:
            self.stores[settings] = SharedStore(settings)
        self.stores[settings].enter()
        return self.stores[settings]

    def leave(self, settings: StoreSettings) -> None:
        """Leave a store after `enter`."""
        if self.stores[settings].leave():
            del self.stores[settings]

    def poller(self, settings: ConnectionSettings, source: str, store: SharedStore) -> SourcePoller:
        """Return the poller of a source. Call it only in a thread of the store."""
        sets = self._sets(settings, source, store)
        return SourcePoller(sets.coordinator, sets, settings.region)

    def _sets(self, settings: ConnectionSettings, source: str, store: SharedStore) -> AcknowledgmentSets:
        coordinator = settings.coordinator(source, self.owner, store=store.open(), clock=self.clock)
        return AcknowledgmentSets(coordinator, SourceBatches())


# Module state, as an exception: Airflow creates triggers one by one, and they share nothing but the event loop that
# they run in. Whatever they share must end with it.
_WATCHERS: WeakKeyDictionary[asyncio.AbstractEventLoop, Watchers] = WeakKeyDictionary()


def watchers() -> Watchers:
    """Return the watchers of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _WATCHERS:
        _WATCHERS[loop] = Watchers(PollPace(poll=Configuration.read().watch_interval))
    return _WATCHERS[loop]


def install_watchers(installed: Watchers) -> None:
    """Make `watchers` return these in the running event loop: with another pace or clock."""
    _WATCHERS[asyncio.get_running_loop()] = installed


@dataclass(eq=False)
class _RepeatedFailure:
    """An operation that fails repeatedly, and is logged once.

    :param what: the failure, for the log.
    :param first_pause: the pause after the first failure, in seconds; it doubles with each further one.
    :param longest_pause: the longest pause, in seconds.
    """

    what: str
    first_pause: float
    longest_pause: float
    _failures: int = 0

    def failed(self, error: Exception) -> float:
        """Record a failure; return how long to pause, in seconds."""
        if not self._failures:
            expected = isinstance(error, CoordinationError)
            log.warning("%s; trying again: %s", self.what, error, exc_info=None if expected else error)
        self._failures += 1
        return min(self.first_pause * float(2 ** min(self._failures - 1, 16)), self.longest_pause)

    def ended(self) -> None:
        """Record a success."""
        if self._failures:
            log.info("%s: it succeeded again after %d failures", self.what, self._failures)
        self._failures = 0


class _Watcher:
    """Polls one source, and notifies the triggers that subscribe to it."""

    def __init__(self, shared: Watchers, settings: ConnectionSettings, source: str) -> None:
        self._shared = shared
        self._settings = settings
        self._source = source
        self._subscriptions: set[Subscription] = set()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, subscription: Subscription) -> None:
        """Add a subscription; the first one starts the polling."""
        self._subscriptions.add(subscription)
        if self._task is None:
            self._task = _in_background(self._watch(), f"watch {self._source}")
        self.wake()

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription; the last one ends the polling."""
        self._subscriptions.discard(subscription)
        if not self._subscriptions:
            self._shared.sources.pop((self._settings, self._source), None)
            if self._task is not None:
                self._task.cancel()

    def wake(self) -> None:
        """Poll before the pause is over."""
        self._woken.set()

    async def _watch(self) -> None:
        pace, store = self._shared.pace, self._shared.enter(self._settings.store)
        failure = _RepeatedFailure(
            f"source {self._source}: the store cannot be polled", pace.poll, pace.max_retry_pause
        )
        poller: SourcePoller | None = None
        try:
            while True:
                try:
                    if poller is None:
                        poller = await store.run(self._poller_maker(store))
                    result = await self._poll(poller, store)
                except _UnusableError as error:
                    self._fail(f"source {self._source!r} cannot be polled: {error}")
                    return
                except Exception as error:
                    await asyncio.sleep(failure.failed(error) * _jitter())
                else:
                    failure.ended()
                    await self._sleep(result)
        finally:
            self._shared.leave(self._settings.store)

    def _poller_maker(self, store: SharedStore) -> Callable[[], SourcePoller]:
        def make_poller() -> SourcePoller:
            try:
                return self._shared.poller(self._settings, self._source, store)
            except ConfigurationError as error:
                raise _UnusableError(str(error)) from error

        return make_poller

    async def _poll(self, poller: SourcePoller, store: SharedStore) -> PollResult:
        """Poll once, and notify the triggers that were waiting when it began; return the result."""
        self._woken.clear()
        waiting = [subscription for subscription in self._subscriptions if subscription.is_armed]
        wanted = Wanted.NOTHING
        for subscription in waiting:
            wanted |= subscription.condition.wanted
        instants = {s.condition.instant for s in waiting if s.condition.instant is not None}
        claimants = {s.condition.claimant for s in waiting if s.condition.claimant is not None}
        queues = {s.condition.queue for s in waiting if s.condition.queue is not None}
        result = await store.run(
            lambda: poller.poll(wanted, instants, claimants, queues),
            queries_source=bool(claimants or queues or poller.keeps_messages),
        )
        for subscription in waiting:
            subscription.check(result.snapshot)
        return result

    def _fail(self, message: str) -> None:
        for subscription in list(self._subscriptions):
            subscription.watched_by(None)
            subscription.fail(message)

    async def _sleep(self, result: PollResult) -> None:
        """Sleep until something is due, a trigger subscribes, or, if it is not idle, the poll interval is over."""
        pace = self._shared.pace
        pause = pace.poll * _jitter()
        if result.next_due is not None:
            left = (result.next_due - self._shared.clock.now()).total_seconds() + JUST_AFTER_SECONDS
            pause = left if result.is_idle else min(pause, left)
        await asyncio.sleep(min(pace.min_pause, pace.poll))
        try:
            async with asyncio.timeout(pause - pace.min_pause):
                await self._woken.wait()
        except TimeoutError:
            pass


class _WatchedConnection:
    """A connection that is read again regularly, and the subscriptions that use it."""

    def __init__(self, shared: Watchers, coordination_conn_id: str) -> None:
        self._shared = shared
        self._conn_id = coordination_conn_id
        self._subscriptions: set[Subscription] = set()
        self._settings: ConnectionSettings | None = None
        self._task = _in_background(self._watch(), f"watch connection {coordination_conn_id}")

    def add(self, subscription: Subscription) -> None:
        """Add a subscription; its source is watched as soon as the connection has been read."""
        self._subscriptions.add(subscription)
        self._attach(subscription)

    def remove(self, subscription: Subscription) -> bool:
        """Remove a subscription; return whether it was the last one, which ends the reading."""
        self._subscriptions.discard(subscription)
        if not self._subscriptions:
            self._task.cancel()
        return not self._subscriptions

    async def _watch(self) -> None:
        pace = self._shared.pace
        failure = _RepeatedFailure(
            f"connection {self._conn_id} cannot be read", pace.retry_interval, pace.max_retry_pause
        )
        unreadable_since: float | None = None
        while True:
            try:
                settings = await read_connection(self._conn_id)
            except ConfigurationError as error:
                now = asyncio.get_running_loop().time()
                unreadable_since = now if unreadable_since is None else unreadable_since
                if now - unreadable_since >= pace.gone_after:
                    self._fail(error)
                pause = pace.retry_interval
            except Exception as error:
                pause = failure.failed(error)
            else:
                unreadable_since, pause = None, pace.reread_interval
                failure.ended()
                self._use(settings)
            await asyncio.sleep(pause * _jitter())

    def _use(self, settings: ConnectionSettings) -> None:
        if settings == self._settings:
            return
        if self._settings is not None:
            log.info("connection %s has changed; the new settings are used", self._conn_id)
        self._settings = settings
        for subscription in self._subscriptions:
            self._attach(subscription)

    def _attach(self, subscription: Subscription) -> None:
        if self._settings is not None:
            subscription.watched_by(self._shared.watcher(self._settings, subscription.source))

    def _fail(self, error: ConfigurationError) -> None:
        self._settings = None
        for subscription in self._subscriptions:
            subscription.watched_by(None)
            subscription.fail(f"source {subscription.source!r} is no longer watched: {error}")


class _UnusableError(Exception):
    """A store or a source cannot be polled, and trying again would not help."""


async def read_connection(coordination_conn_id: str) -> ConnectionSettings:
    """Read a connection, in a thread, since Airflow is queried across processes."""
    # Older triggerers answer only a thread that knows their event loop.
    return await sync_to_async(lambda: CoordinationHook(coordination_conn_id).settings, thread_sensitive=False)()


def _in_background(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    # In a separate context: its log lines belong to no trigger, whichever trigger started it.
    return asyncio.get_running_loop().create_task(work, name=name, context=contextvars.Context())


def _jitter() -> float:
    return random.uniform(0.8, 1.0)
