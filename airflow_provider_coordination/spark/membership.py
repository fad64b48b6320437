"""Membership: the job for which a thread works, in a Spark application that several jobs share.

Spark keeps the pool, the tags and the job group of Spark jobs for each thread, and a log record knows its thread only.
So the job is a context variable, and threads that work for a job run in a copy of its context. Without a member, the
application belongs to one job.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

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


@dataclass(eq=False)
class Membership:
    """The membership of a job in a shared Spark application.

    :param context: the Spark context that jobs share.
    :param source: the job's source, which has a scheduling pool of its own for all but landing.
    :param owner: the job's owner.
    :param session: the job's own Spark session; None until something needs one.
    :param stores: the stores that jobs share; None if each job opens its own.
    """

    context: SparkContext
    source: str
    owner: str
    session: SparkSession | None = None
    stores: SharedStores | None = None

    @property
    def tag(self) -> str:
        """The tag of the job's Spark jobs; a tag must not contain a comma."""
        return f"job {self.owner.replace(',', ';')}"


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
        context.setLocalProperty(POOL, pool or member.source)
        context.addJobTag(member.tag)


def cancel_jobs(context: SparkContext) -> None:
    """Cancel all Spark jobs of the job for which this thread works, and no others."""
    if (member := current_membership()) is None:
        context.cancelAllJobs()
    else:
        context.cancelJobsWithTag(member.tag)
