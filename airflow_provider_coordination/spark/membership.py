"""Membership: the job for which a thread works, in a Spark application that several jobs share.

Spark keeps the pool, the tags and the job group of Spark jobs for each thread, and a log record knows its thread only.
So the job is a context variable, and threads that work for a job run in a copy of its context. Without a member, the
application belongs to one job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from airflow_provider_coordination.coordination.store import CoordinationStore
    from airflow_provider_coordination.stores import StoreSettings

LANDING = "landing"
"""The Spark job group of landing, so that landing can be cancelled without other Spark jobs.

It is also the scheduling pool of the landings of all members: there, the oldest comes first. Of pools that run equally
many tasks, Spark always prefers the one with the smallest name, so the last of many sources would wait forever.
"""
POOL = "spark.scheduler.pool"

SlotTask = Callable[[int, Iterable[Any]], Iterable[Any]]


class SharedStores:
    """The stores of all jobs of an application: each job would otherwise have connections of its own."""

    def __init__(self) -> None:
        self._stores: dict[StoreSettings, CoordinationStore] = {}
        self._lock = threading.Lock()

    def get(self, settings: StoreSettings) -> CoordinationStore:
        """Return the store with these settings, which nobody closes but `close`."""
        from airflow_provider_coordination.stores import open_store  # executors import this module, and need no store

        with self._lock:
            if settings not in self._stores:
                self._stores[settings] = open_store(settings)
            return self._stores[settings]

    def close(self) -> None:
        """Close all stores, once no job uses one."""
        with self._lock:
            for store in self._stores.values():
                store.close()
            self._stores.clear()


class Landings(Protocol):
    """Runs small landings of several members together, and lets the others take turns."""

    def run(self, member: str, slot: Sequence[Any], task: SlotTask, load: float) -> list[Any] | None:
        """Run the landing of a slot; return what its task returned, or None if it must have a task of its own.

        :param member: the owner of the job that it belongs to.
        :param slot: the plans of the slot.
        :param task: lands the slot of a number; it travels pickled.
        :param load: how much it reads, in bytes a second.
        """
        ...

    def is_small(self, member: str, slots: int, load: float) -> bool:
        """Return whether `run` takes a landing, so that it needs no turn.

        :param slots: how many slots it needs.
        """
        ...

    def turn(self, member: str, slots: int) -> AbstractContextManager[int]:
        """Wait for a turn to land; yield how many slots the landing has, at least one.

        :param slots: how many slots it can use.
        """
        ...

    def cancel(self, member: str) -> None:
        """Let a landing of a member that waits for its turn fail."""
        ...


@dataclass(eq=False)
class Membership:
    """The membership of a job in a shared Spark application.

    :param context: the Spark context that jobs share.
    :param source: the job's source, which has a scheduling pool of its own for all but landing.
    :param owner: the job's owner.
    :param weight: the weight of that pool; see `RoundSettings.weight`.
    :param session: the job's own Spark session; None until something needs one.
    :param stores: the stores that jobs share; None if each job opens its own.
    :param landings: runs small landings together with those of other jobs; None if each landing has tasks of its own.
    """

    context: SparkContext
    source: str
    owner: str
    weight: int = 1
    session: SparkSession | None = None
    stores: SharedStores | None = None
    landings: Landings | None = None

    @property
    def tag(self) -> str:
        """The tag of the job's Spark jobs; a tag must not contain a comma."""
        return f"job {self.owner.replace(',', ';')}"

    @property
    def pool(self) -> str:
        """The scheduling pool of the source. Spark never changes the weight of a pool, so it is part of the name."""
        return self.source if self.weight == 1 else f"{self.source} of weight {self.weight}"

    def add_pool(self) -> None:
        """Add the pool to the Spark application. Spark itself adds one without a weight at its first task."""
        if self.weight == 1:
            return
        jvm: Any = self.context._jvm
        root, scheduler = self.context._jsc.sc().taskScheduler().rootPool(), jvm.org.apache.spark.scheduler
        if root.getSchedulableByName(self.pool) is None:
            root.addSchedulable(scheduler.Pool(self.pool, scheduler.SchedulingMode.FIFO(), 0, self.weight))


_MEMBER: ContextVar[Membership | None] = ContextVar("member", default=None)


def current_membership() -> Membership | None:
    """Return the member for which this thread works; None if the application belongs to one job."""
    return _MEMBER.get()


@contextmanager
def working_for(member: Membership) -> Iterator[None]:
    """Let this thread work for a member while the block runs."""
    token = _MEMBER.set(member)
    try:
        yield
    finally:
        _MEMBER.reset(token)


def landing_group() -> str:
    """Return the Spark job group of landing, for the job for which this thread works."""
    member = current_membership()
    return LANDING if member is None else f"{LANDING} of {member.tag}"


def mark_jobs(context: SparkContext, *, pool: str | None = None) -> None:
    """Let the next Spark jobs of this thread count as jobs of its member, by pool and tag; without one, do nothing.

    :param pool: their scheduling pool; None for the source's own.
    """
    if (member := current_membership()) is not None:
        context.setLocalProperty(POOL, pool or member.pool)
        context.addJobTag(member.tag)


def cancel_jobs(context: SparkContext) -> None:
    """Cancel all Spark jobs of the job for which this thread works, and no others."""
    if (member := current_membership()) is None:
        context.cancelAllJobs()
    else:
        context.cancelJobsWithTag(member.tag)
