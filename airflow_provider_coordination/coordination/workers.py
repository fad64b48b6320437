"""The workers of a source: who is there, what each may hold, and what it asks others for.

A worker is an item of the family `…|WORKER`, leased to itself and renewed as its partitions are: who is gone without
a word counts until that lease has run out, who says goodbye counts no more at once. The Kinesis Client Library knows
workers by their leases, or by metrics that live on for a while, so that a stopped worker still gets leases there.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

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

log = logging.getLogger(__name__)

FAMILY = "WORKER"
PAGE = 500
FORGOTTEN_AFTER = 3
"""A worker whose registration ran out this many lease lengths ago is removed by whoever looks."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A lease that a worker asks another for.

    :param key: the partition's key.
    :param giver: who held it when it was asked for.
    :param since: when it was asked for, by the asking worker's clock (aware).
    """

    key: str
    giver: str
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A registered worker.

    :param owner: who it is.
    :param registered_until: when its registration runs out, if it is not renewed (aware).
    :param started_at: when it registered first (aware); None if it does not say.
    :param max_leases: most leases that it holds; None for any number.
    :param wishes: what it asks others for.
    """

    owner: str
    registered_until: datetime
    started_at: datetime | None = None
    max_leases: int | None = None
    wishes: tuple[Wish, ...] = ()

    @classmethod
    def of(cls, item: Partition) -> Worker | None:
        """Return the worker that an item is about; None if it is about none.

        What it says in a form that this version does not know is passed over: it is a worker all the same.
        """
        if item.owner is None or item.ownership_timeout is None:
            return None
        limit, started = item.progress.get("max_leases"), item.progress.get("started_at")
        wants = item.progress.get("wants")
        return cls(
            owner=item.owner,
            registered_until=item.ownership_timeout,
            started_at=read_instant(started),
            max_leases=limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None,
            wishes=tuple(
                Wish(key=str(key), giver=said["from"], since=since)
                for key, said in (wants.items() if isinstance(wants, Mapping) else ())
                if isinstance(said, Mapping)
                and isinstance(said.get("from"), str)
                and (since := read_instant(said.get("since"))) is not None
            ),
        )

    def wants(self, partition_key: str, giver: str) -> bool:
        """Return whether it asks this owner for this partition."""
        return any(wish.key == partition_key and wish.giver == giver for wish in self.wishes)


class Workers:
    """The workers of one source, and this one's place among them.

    :param store: where the items are.
    :param source_identifier: their family, `[prefix|]source|WORKER`.
    :param owner: who this worker is.
    :param leases: of this worker, in that family.
    :param safety_margin: so far may the clocks of workers differ.
    :param clock: where the time comes from.
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
        self._owner = owner
        self._leases = leases
        self._safety_margin = safety_margin
        self._clock = clock
        self._key = item_key(owner)
        self._started_at = format_instant(clock.now())
        self._in_doubt = False  # something was written, and no answer came

    @property
    def is_registered(self) -> bool:
        """Whether this worker is registered, as far as it knows."""
        return self._leases.holds(self._key)

    def register(self, *, max_leases: int | None = None, wishes: Sequence[Wish] = ()) -> None:
        """Register this worker, or write what is new about it; writes nothing where nothing is.

        :param max_leases: most leases that it holds; None for any number.
        :param wishes: what it asks others for.
        """
        said: dict[str, Any] = {"max_leases": max_leases, "started_at": self._started_at}
        if wishes:
            said["wants"] = {wish.key: {"from": wish.giver, "since": format_instant(wish.since)} for wish in wishes}
        for _ in range(3):
            if not self.is_registered:
                self._create(said)
            held = self._leases.find(self._key)
            if held is not None and held.progress == said and self._leases.owns(self._key) and not self._in_doubt:
                return
            self._in_doubt = True
            # Somebody took this worker for dead and removed it, or the answer to its last word was lost.
            with suppress(*LOST):
                self._leases.change(
                    self._key, lambda item: self._leases.renewed(item.with_progress(said)), needs_trust=False
                )
                self._in_doubt = False
                return

    def deregister(self) -> None:
        """Say goodbye: others count this worker no more."""
        if self.is_registered:
            with suppress(*LOST, PartitionUpdateError):  # it ran out, or was removed already
                self._leases.delete(self._key)
        self.remove(self._owner)  # perhaps it was written without an answer, or is there although it ran out

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
        """Read the workers whose registration has not run out; remove those that are dead for long."""
        now = self._clock.now()
        found = []
        for item in self._items():
            worker = Worker.of(item)
            if worker is None:
                continue
            if worker.registered_until + self._safety_margin > now:
                found.append(worker)
            elif worker.registered_until + FORGOTTEN_AFTER * self._leases.ownership_timeout < now:
                log.info("worker removed, it is dead: family=%s owner=%s", self._source_identifier, worker.owner)
                with suppress(PartitionUpdateError):  # it lives after all, or somebody else was faster
                    self._store.delete(item)
        return found

    def item_of(self, owner: str) -> Partition | None:
        """Return a worker's item as the store holds it now, if its registration has not run out."""
        item = self._store.get(self._source_identifier, item_key(owner))
        if item is None or item.priority + self._safety_margin <= self._clock.now():
            return None
        return item

    def _items(self) -> Iterator[Partition]:
        """Yield the items, with one query for as many workers as there ever are."""
        last: Partition | None = None
        while True:
            page = self._store.query(self._source_identifier, PartitionStatus.ASSIGNED, after=last, limit=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1]

    def _create(self, said: Mapping[str, Any]) -> None:
        now = self._clock.now()
        item = new_partition(self._source_identifier, self._key, now).with_progress(said)
        self._store.create([item.acquired(self._owner, now + self._leases.ownership_timeout)])
        self._leases.adopt(self._key)
        log.info("worker registered: family=%s owner=%s", self._source_identifier, self._owner)


def item_key(owner: str) -> str:
    """Return the key of a worker's item: its name, or a digest of one that no store could take."""
    return owner if len(owner.encode()) <= MAX_KEY_BYTES else hashlib.sha256(owner.encode()).hexdigest()
