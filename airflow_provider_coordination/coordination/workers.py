"""The workers of a source: who owns a lease, which are live, what each may hold and run, and its lease requests.

An owner is one worker process of one task try, never just a host. In Data Prepper, the owner is the host's name, so two
processes on a host are one owner and both may write. That cannot happen here.

A worker is an item of the family `…|WORKER`, leased to itself and renewed as its partitions are. A worker that
disappears counts until its lease has expired; a worker that deregisters no longer counts at once. The Kinesis Client
Library knows workers by their leases, or by metrics that remain for a while, so a stopped worker still gets leases.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.leases import LOST, Leases
from airflow_provider_coordination.coordination.partition import (
    MAX_KEY_BYTES,
    Partition,
    PartitionStatus,
    format_instant,
    new_partition,
    read_instant,
)
from airflow_provider_coordination.coordination.store import CoordinationStore

PARTS = 7
"""The minimum number of parts of an owner; a run's id may contain the separator."""


class TaskTry(NamedTuple):
    """The task try to which an owner belongs."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int


def new_owner(dag_id: str, run_id: str, task_id: str, map_index: int, try_number: int) -> str:
    """Return a new owner for one try of one task; unique for every call.

    :param map_index: Airflow's map index; -1 for a task that is not mapped.
    """
    return ":".join(
        (socket.gethostname(), dag_id, run_id, task_id, str(map_index), str(try_number), secrets.token_hex(4))
    )


def task_of(owner: str) -> TaskTry | None:
    """Return the task try of an owner from `new_owner`; None if the name has another format."""
    parts = owner.split(":")
    if len(parts) < PARTS:
        return None
    _, dag_id, *run, task_id, map_index, try_number, _ = parts
    try:
        return TaskTry(dag_id, ":".join(run), task_id, int(map_index), int(try_number))
    except ValueError:
        return None


def is_earlier_try(owner: str, than: str) -> bool:
    """Return whether an owner belongs to an earlier try of the same task in the same run than another owner."""
    earlier, later = task_of(owner), task_of(than)
    if earlier is None or later is None:
        return False
    return earlier._replace(try_number=0) == later._replace(try_number=0) and earlier.try_number < later.try_number


log = logging.getLogger(__name__)

FAMILY = "WORKER"
PAGE = 500
REMOVED_AFTER_TIMEOUTS = 3
"""After this many ownership timeouts, any worker removes another worker whose registration has expired."""


@dataclass(frozen=True, kw_only=True)
class LeaseRequest:
    """A worker's request for a lease of another worker.

    :param key: the partition's key.
    :param giver: the owner at the time of the request.
    :param since: the time of the request, by the requesting worker's clock (aware).
    """

    key: str
    giver: str
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A registered worker.

    :param owner: its owner name.
    :param registered_until: when its registration expires unless it is renewed (aware).
    :param started_at: when it first registered (aware); None if unknown.
    :param max_leases: the maximum number of leases that it holds; None for no limit.
    :param slots: how many tasks it runs at the same time; None if unknown.
    :param lease_requests: its requests to other workers.
    :param replaces: the owner whose leases it takes over, all of them; None if it replaces no worker.
    :param delivers: the digest of what it does with landed batches: workers with equal digests deliver alike.
    """

    owner: str
    registered_until: datetime
    started_at: datetime | None = None
    max_leases: int | None = None
    slots: int | None = None
    lease_requests: tuple[LeaseRequest, ...] = ()
    replaces: str | None = None
    delivers: str = ""

    @classmethod
    def of(cls, item: Partition) -> Worker | None:
        """Return the worker from its item; None if the item is not a worker.

        Values in a format that this version does not know are ignored; the worker still counts.
        """
        if item.owner is None or item.ownership_timeout is None:
            return None
        requests, replaces = item.progress.get("lease_requests"), item.progress.get("replaces")
        return cls(
            owner=item.owner,
            registered_until=item.ownership_timeout,
            started_at=read_instant(item.progress.get("started_at")),
            max_leases=_number(item.progress.get("max_leases")),
            slots=_number(item.progress.get("slots")),
            lease_requests=tuple(
                LeaseRequest(key=str(key), giver=request["from"], since=since)
                for key, request in (requests.items() if isinstance(requests, Mapping) else ())
                if isinstance(request, Mapping)
                and isinstance(request.get("from"), str)
                and (since := read_instant(request.get("since"))) is not None
            ),
            replaces=replaces if isinstance(replaces, str) else None,
            delivers=str(item.progress.get("delivers", "")),
        )

    def requests_lease(self, partition_key: str, giver: str) -> bool:
        """Return whether it requests this partition from this owner."""
        return self.replaces == giver or any(
            request.key == partition_key and request.giver == giver for request in self.lease_requests
        )


class Workers:
    """The workers of one source, including this worker.

    :param store: the store of the items.
    :param source_identifier: their family, `[prefix|]source|WORKER`.
    :param owner: this worker's owner name.
    :param leases: this worker's leases in that family.
    :param safety_margin: how much the clocks of workers may differ.
    :param clock: the source of time.
    """

    def __init__(
        self,
        store: CoordinationStore,
        source_identifier: str,
        owner: str,
        leases: Leases,
        *,
        safety_margin: timedelta,
        clock: Clock,
    ) -> None:
        self._store = store
        self._source_identifier = source_identifier
        self._source = source_identifier.rpartition("|")[0]
        self._owner = owner
        self._leases = leases
        self._safety_margin = safety_margin
        self._clock = clock
        self._key = item_key(owner)
        self._started_at = format_instant(clock.now())
        self._in_doubt = False  # a write got no response

    @property
    def is_registered(self) -> bool:
        """Whether this worker is registered, as far as it knows."""
        return self._leases.holds(self._key)

    def register(
        self,
        *,
        max_leases: int | None = None,
        slots: int | None = None,
        lease_requests: Sequence[LeaseRequest] = (),
        replaces: str | None = None,
        delivers: str = "",
    ) -> None:
        """Register this worker, or update its item if something has changed; see `Worker` for the parameters."""
        progress: dict[str, Any] = {"max_leases": max_leases, "started_at": self._started_at}
        if slots is not None:
            progress["slots"] = slots
        if replaces is not None:
            progress["replaces"] = replaces
        if delivers:
            progress["delivers"] = delivers
        if lease_requests:
            progress["lease_requests"] = {
                request.key: {"from": request.giver, "since": format_instant(request.since)}
                for request in lease_requests
            }
        for _ in range(3):
            if not self.is_registered:
                self._create(progress)
            held = self._leases.find(self._key)
            if held is not None and held.progress == progress and self._leases.owns(self._key) and not self._in_doubt:
                return
            self._in_doubt = True
            # Another worker considered this one dead and removed it, or the response to its last write was lost.
            with suppress(*LOST):
                self._leases.change(
                    self._key, lambda item: self._leases.renewed(item.with_progress(progress)), requires_trust=False
                )
                self._in_doubt = False
                return

    def deregister(self) -> None:
        """Deregister this worker, so that others no longer count it."""
        if self.is_registered:
            with suppress(*LOST, PartitionUpdateError):  # it expired, or was removed already
                self._leases.delete(self._key)
        self.remove(self._owner)  # the item may exist: written without a response, or expired

    def remove(self, owner: str) -> None:
        """Remove a worker that is known to be dead."""
        while (item := self._store.get(self._source_identifier, item_key(owner))) is not None:
            with suppress(PartitionUpdateError):  # it was renewed in between
                self._store.delete(item)
                return

    def renew_due(self) -> None:
        """Renew the registration if a third of its time has passed."""
        self._leases.renew_due()

    def live(self) -> list[Worker]:
        """Read the workers whose registration has not expired; remove those that expired long ago."""
        now = self._clock.now()
        workers = []
        for item in self._items():
            worker = Worker.of(item)
            if worker is None:
                continue
            if worker.registered_until + self._safety_margin > now:
                workers.append(worker)
            elif worker.registered_until + REMOVED_AFTER_TIMEOUTS * self._leases.ownership_timeout < now:
                log.info("dead worker removed: source=%s owner=%s", self._source, worker.owner)
                with suppress(PartitionUpdateError):  # it is alive after all, or another worker was faster
                    self._store.delete(item)
        return workers

    def item_of(self, owner: str) -> Partition | None:
        """Return a worker's item as it is stored now; None if its registration has expired."""
        item = self._store.get(self._source_identifier, item_key(owner))
        if item is None or item.priority + self._safety_margin <= self._clock.now():
            return None
        return item

    def _items(self) -> Iterator[Partition]:
        """Yield the items; one query usually reads all workers."""
        last: Partition | None = None
        while True:
            page = self._store.query(self._source_identifier, PartitionStatus.ASSIGNED, after=last, limit=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1]

    def _create(self, progress: Mapping[str, Any]) -> None:
        now = self._clock.now()
        item = new_partition(self._source_identifier, self._key, now).with_progress(progress)
        self._store.create([item.acquired(self._owner, now + self._leases.ownership_timeout)])
        self._leases.adopt(self._key)
        log.info("worker registered: source=%s owner=%s", self._source, self._owner)


def item_key(owner: str) -> str:
    """Return the key of a worker's item: its name, or a digest if the name is too long for a key."""
    return owner if len(owner.encode()) <= MAX_KEY_BYTES else hashlib.sha256(owner.encode()).hexdigest()


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
