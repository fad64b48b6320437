"""Shares a source's partitions among its workers: the part of one worker, round after round.

Free partitions are acquired up to the worker's share. If none is free, a worker below its share requests a lease from a
worker above its share. The request is in the requesting worker's own item of the registry. At its next round, the
owner makes the requesting worker the owner in one conditional write. That worker delivers what is landed. If it
delivers otherwise, because its settings differ, the owner delivers first and lands nothing new. If the handover timeout
passes first, it hands the partition over as it is. If a request gets no response, the worker takes the lease by force.
So each side ends every handover by a deadline, measured by its own monotonic clock only. The model is the Kinesis
Client Library's graceful handoff, which may hang if one side forgets it.

A worker that replaces another one requests all of its leases by its registration alone. It counts in place of its
predecessor, so no other worker gets or loses leases because of both.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.balance import BY_COUNT, BalancePlan, Lease, Member, Move, Rules, plan
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.held_leases import DEFAULT_HANDOVER_TIMEOUT
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import WORKERS, CoordinationMetric
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus
from airflow_provider_coordination.coordination.workers import LeaseRequest, Worker

log = logging.getLogger(__name__)

POLLS_PER_TIMEOUT = 6
"""How often per ownership timeout a worker lists the partitions and reads the lease requests of other workers."""
FORCE_AFTER_TIMEOUTS = 3
"""After this many ownership timeouts, any worker that may hold more takes a free partition. This is the Kinesis Client
Library's rule for very old leases, but here the age of a lease is how long this worker has known it to be free."""
MAX_LEASE_REQUESTS_BYTES = 32 * 1024
"""The maximum size of the keys and owners that a worker requests at once: its item must stay small."""
LEASE_REQUEST_BYTES = 64
"""The size of a lease request in addition to its key and owner."""
TRIES = 3


@dataclass(frozen=True)
class _Listed:
    """A partition as it was listed."""

    key: str
    status: PartitionStatus
    owner: str | None
    is_awaiting: bool
    available_at: datetime
    throughput: float | None


@dataclass(frozen=True)
class _HandoverRequest:
    """Another worker's request for a lease of this worker."""

    taker: str
    received_at: float  # on the monotonic clock
    delivers_alike: bool


class Balancer:
    """Balances the partitions of a source for one worker.

    The working thread calls `rebalance` once per round. A `LeaseRenewer` calls `renew_due`, so that a long round delays
    neither the registration nor a handover.

    :param coordinator: the initialized coordinator of the source.
    :param max_leases: the maximum number of leases, even if a fair share is larger; None for no limit.
    :param balance_by: what workers share evenly: the count of leases, or their throughput.
    :param max_leases_to_steal: how many leases it requests from others at a time; None for an eighth of an even share.
    :param handover_timeout: how long an owner may take to hand over a lease that another worker requested.
    :param expected_workers: the minimum number of workers to assume during this worker's first ownership timeout,
        because the others may not have started yet.
    :param count_slots: returns how many tasks this worker runs at the same time, or None if unknown. Its share is
        proportional to that.
    :param replaces: the owner whose leases this worker takes over; None if it replaces no worker.
    :param delivers: see `Worker`.
    """

    def __init__(
        self,
        coordinator: SourceCoordinator,
        *,
        max_leases: int | None = None,
        balance_by: str = BY_COUNT,
        max_leases_to_steal: int | None = None,
        handover_timeout: timedelta = DEFAULT_HANDOVER_TIMEOUT,
        expected_workers: int = 1,
        count_slots: Callable[[], int | None] = lambda: None,
        replaces: str | None = None,
        delivers: str = "",
    ) -> None:
        self._coordinator = coordinator
        self._workers = coordinator.workers
        self._me = coordinator.owner
        self._clock = coordinator.clock
        self._balance_by = balance_by
        self._max_leases = max_leases
        self._max_leases_to_steal = max_leases_to_steal
        self._handover_seconds = handover_timeout.total_seconds()
        self._expected_workers = expected_workers
        self._count_slots = count_slots
        self.slots: int | None = None
        """How many tasks this worker runs at the same time, as of the last round; None if unknown."""
        self._replaces = replaces
        self._delivers = delivers
        self._timeout_seconds = coordinator.leases.ownership_timeout.total_seconds()
        self._poll_seconds = self._timeout_seconds / POLLS_PER_TIMEOUT
        self._started = self._clock.monotonic()
        self._listing: dict[str, _Listed] = {}
        self._listed_at: float | None = None
        self._listed_for: frozenset[str] = frozenset()  # the workers that were live then
        self._free_since: dict[str, float] = {}
        self._departed: set[str] = set()  # workers that ended, as long as leases are in their name
        self._requests: dict[str, tuple[LeaseRequest, float]] = {}  # with their monotonic time
        self._held_before: frozenset[str] = frozenset()
        self._lock = threading.Lock()  # for state that the renewal thread changes as well
        self._live: dict[str, Worker] = {}
        self._successors: dict[str, str] = {}  # of live workers
        self._polled_at: float | None = None
        self._leaving: dict[str, _HandoverRequest] = {}
        self._handed_over: set[str] = set()
        self._handing_over = threading.Lock()

    # For the working thread

    def rebalance(self) -> list[Partition]:
        """Register, read the live workers, and acquire, adopt and request the partitions that this worker should hold.

        While the source is suspended, it requests nothing and only adopts what was handed over already.

        :returns: the partitions that it gained.
        """
        self.slots = self._count_slots()
        self._register()
        self._poll()
        if self._listed_for - self._live.keys():  # they may have left because of a suspension
            self._coordinator.view.suspensions.invalidate()
        if self._coordinator.view.suspension() is not None:
            return self._withdraw()
        gained = self._collect_handovers()
        fresh = self._refresh_listing(force=bool(gained) or self._awaits_predecessor)
        while self._awaits_predecessor and self._held_before != (held := frozenset(self._coordinator.leases.held)):
            self._held_before = held  # more may arrive while these are listed
            self._refresh_listing(force=True)
        todo = self._plan()
        for key in todo.obsolete:
            self._requests.pop(key, None)
        acquired = self._coordinator.leases.acquire(todo.acquire) if todo.acquire else []
        if fresh and not acquired:  # nothing was free just now
            self._request_leases(todo)
        self._register()
        self._held_before = frozenset(self._coordinator.leases.held)
        return gained + acquired

    @property
    def is_waiting(self) -> bool:
        """Whether other workers have yet to hand over leases that this worker requests."""
        return bool(self._requests) or self._awaits_predecessor

    @property
    def successor(self) -> str | None:
        """The live worker that takes over all leases of this one; None if there is none."""
        with self._lock:
            return self._successors.get(self._me)

    @property
    def leaving(self) -> dict[str, str]:
        """The held partitions that other workers request, with the worker, for `hand_over`."""
        with self._lock:
            return {key: asked.taker for key, asked in self._leaving.items()}

    def delivers_first(self, partition_key: str) -> bool:
        """Return whether a requested partition must be delivered first, because the worker would deliver otherwise."""
        with self._lock:
            return partition_key in self._leaving and not self._leaving[partition_key].delivers_alike

    def hand_over(self, partition_keys: Collection[str]) -> list[str]:
        """Hand partitions over to the workers that still request them; return the keys of those handed over.

        Their work must be finished, or left to the next owner.

        :raises StoreUnavailableError: if the store is unavailable.
        """
        with self._handing_over:
            with self._lock:
                takers = {key: self._leaving[key].taker for key in partition_keys if key in self._leaving}
            handed_over: list[str] = []
            for taker in dict.fromkeys(takers.values()):
                handed_over += self._hand_over(taker, [key for key, its_taker in takers.items() if its_taker == taker])
            return handed_over

    def was_handed_over(self, partition_key: str) -> bool:
        """Return whether a partition that is no longer held was handed over; True only once per handover."""
        with self._handing_over, self._lock:  # the renewal thread may be about to record it
            known = partition_key in self._handed_over
            self._handed_over.discard(partition_key)
            return known

    def leave(self) -> None:
        """Deregister this worker, so that others no longer count it. Give its leases back afterwards.

        From now on, no other worker hands a lease over to it. Leases handed over already are held and must be given
        back.
        """
        self._workers.deregister()
        self._adopt_all(self._clear_requests())

    # For the renewal thread

    @property
    def ownership_timeout(self) -> timedelta:
        """How long a registration lasts without renewal."""
        return self._coordinator.leases.ownership_timeout

    def renew_due(self) -> None:
        """Renew the registration, read lease requests, and hand over partitions that are not finished in time."""
        self._workers.renew_due()
        if self._polled_at is None:  # not registered yet
            return
        if self._clock.monotonic() - self._polled_at >= self._poll_seconds:
            self._poll()
        with self._lock:
            overdue = [
                key for key, asked in self._leaving.items() if self._passed(asked.received_at, self._handover_seconds)
            ]
        for key in overdue:
            log.warning("partition is handed over unfinished, because its round takes too long: partition=%s", key)
        if overdue:
            self.hand_over(overdue)

    # Internal: reading

    def _poll(self) -> None:
        """Read the live workers and their lease requests to this worker."""
        workers = self._workers.live()
        held = self._coordinator.leases.held
        requested: dict[str, tuple[datetime, str]] = {}
        live = {worker.owner: worker for worker in workers}
        successors = _successors(workers)
        for worker in workers:
            for request in worker.lease_requests if worker.owner != self._me else ():
                if request.giver == self._me and request.key in held:
                    first = (request.since, worker.owner)
                    requested[request.key] = min(first, requested.get(request.key, first))
        if (successor := successors.get(self._me)) is not None:
            since = live[successor].started_at or self._clock.now()
            requested = dict.fromkeys(held, (since, successor))
        now = self._clock.monotonic()
        with self._lock:
            known = {(key, was.taker): was for key, was in self._leaving.items()}
            self._leaving = {
                key: known.get(
                    (key, taker), _HandoverRequest(taker, now, delivers_alike=live[taker].delivers == self._delivers)
                )
                for key, (_, taker) in requested.items()
            }
            self._live, self._successors = live, successors
            self._polled_at = now
            for key in requested.keys() - {key for key, _ in known}:
                log.info("partition requested by another worker: partition=%s by=%s", key, requested[key][1])
        self._coordinator.events.gauge(WORKERS, len(workers))

    def _refresh_listing(self, *, force: bool) -> bool:
        """List the unfinished partitions if the last listing is old or outdated; return whether they were listed.

        :param force: whether the listing is known to be outdated.
        """
        live, held = frozenset(self._live), self._coordinator.leases.held
        self._departed = (self._departed | self._listed_for) - live
        if (
            self._listed_at is not None
            and not force
            and not self._passed(self._listed_at, self._poll_seconds)
            and self._held_before <= held.keys()
            and not any(listed.owner in self._departed for key, listed in self._listing.items() if key not in held)
        ):
            return False
        self._listed_at = self._clock.monotonic()
        self._list(self._coordinator.view.partitions(*UNFINISHED))
        self._listed_for = live
        self._departed &= {listed.owner for listed in self._listing.values() if listed.owner is not None}
        return True

    def _list(self, partitions: Iterable[Partition]) -> None:
        newest: dict[str, Partition] = {}
        for partition in partitions:  # a partition whose status changes during the listing may occur twice
            known = newest.get(partition.partition_key)
            if known is None or known.version < partition.version:
                newest[partition.partition_key] = partition
        self._listing = {
            key: _Listed(
                key=key,
                status=partition.status,
                owner=partition.owner,
                is_awaiting=partition.is_awaiting,
                available_at=self._coordinator.view.available_at(partition),
                throughput=_throughput(partition.progress),
            )
            for key, partition in newest.items()
        }
        # Partitions that were handed over after this worker had withdrawn its request.
        self._adopt_all([key for key, listed in self._listing.items() if listed.owner == self._me])

    # Internal: handing over

    def _hand_over(self, taker: str, keys: Sequence[str]) -> list[str]:
        handed_over: list[str] = []
        for _ in range(TRIES):
            item = self._workers.item_of(taker)
            worker = None if item is None else Worker.of(item)
            wanted = set() if worker is None else {key for key in keys if worker.requests_lease(key, self._me)}
            for key in (key for key in keys if key not in wanted):
                log.info("partition stays, its request was withdrawn: partition=%s", key)
                self._forget(key)
            if item is None or not (keys := [key for key in keys if key in wanted]):
                break
            results = self._coordinator.leases.give_each(keys, taker, unchanged=[item])
            keys, errors = [], []
            for key, result in results.items():
                if isinstance(result, PartitionUpdateError):
                    keys.append(key)  # the other worker renewed its item in between, or changed its requests
                elif isinstance(result, LOST):
                    log.info("%s", result)
                    self._forget(key)
                elif isinstance(result, Exception):
                    errors.append(result)
                else:
                    self._forget(key, is_handed_over=True)
                    handed_over.append(key)
            if errors:
                raise errors[0]
            if not keys:
                break
        return handed_over

    # Internal: planning

    def _plan(self) -> BalancePlan:
        if self.successor is not None:
            return BalancePlan(obsolete=frozenset(self._requests))
        leases, owners = self._leases(), dict(self._live)
        members = [
            Member(owner=worker.owner, max_leases=worker.max_leases, slots=worker.slots)
            for worker in owners.values()
            if worker.owner != self._me and worker.owner not in self._successors
        ]
        silent = {lease.owner for lease in leases if lease.owner is not None} - owners.keys() - self._departed
        members += [Member(owner=owner, hands_over=False) for owner in silent if owner != self._me]
        members.append(Member(owner=self._me, max_leases=self._max_leases, slots=self.slots))
        starting = not self._passed(self._started, self._timeout_seconds)
        return plan(
            self._me,
            leases,
            members,
            self._pending_moves(),
            Rules(
                balance_by=self._balance_by,
                max_leases_to_steal=self._max_leases_to_steal,
                expected_workers=self._expected_workers if starting else 1,
                force_after_seconds=FORCE_AFTER_TIMEOUTS * self._timeout_seconds,
            ),
        )

    def _leases(self) -> list[Lease]:
        """Return the leases to share: none that waits for a retry, is parked, or awaits acknowledgments."""
        now, held = self._clock.now(), self._coordinator.leases.held
        free: list[_Listed] = []
        leases = []
        for key, listed in self._listing.items():
            if key in held:
                continue
            if listed.available_at <= now and listed.owner != self._me:
                free.append(listed)
            elif listed.status is PartitionStatus.ASSIGNED and not listed.is_awaiting and listed.owner != self._me:
                owner = None if listed.owner is None else self._heirs(listed.owner)[-1]
                leases.append(Lease(key=key, owner=owner, throughput=listed.throughput))
        for key, partition in held.items():
            leases.append(Lease(key=key, owner=self._me, throughput=_throughput(partition.progress)))
        monotonic = self._clock.monotonic()
        self._free_since = {listed.key: self._free_since.get(listed.key, monotonic) for listed in free}
        free.sort(key=lambda listed: (listed.owner is None, listed.available_at, listed.key))
        leases += [
            Lease(key=f.key, throughput=f.throughput, free_seconds=monotonic - self._free_since[f.key]) for f in free
        ]
        return leases

    def _heirs(self, owner: str) -> list[str]:
        """Return an owner and its successors, in order: the leases of all are to be the last one's."""
        heirs = [owner]
        while (successor := self._successors.get(heirs[-1])) is not None and successor not in heirs:
            heirs.append(successor)
        return heirs

    @property
    def _awaits_predecessor(self) -> bool:
        """Whether live workers that this one replaces had leases to hand over when they were listed last."""
        if self._replaces not in self._live:
            return False
        owners = {listed.owner for listed in self._listing.values() if listed.owner is not None}
        return self._listed_at is None or any(self._me in self._heirs(owner)[1:] for owner in owners)

    def _pending_moves(self) -> list[Move]:
        others = [(request, worker.owner) for worker in self._live.values() for request in worker.lease_requests]
        requests = [pair for pair in others if pair[1] != self._me] + [
            (request, self._me) for request, _ in self._requests.values()
        ]
        requests.sort(key=lambda pair: (pair[0].since, pair[1], pair[0].key))
        return [Move(key=request.key, giver=request.giver, taker=taker) for request, taker in requests]

    # Internal: requesting

    def _collect_handovers(self) -> list[Partition]:
        """Check the open requests; return the partitions that this worker holds now."""
        known = self._coordinator.view.get_many(list(self._requests))
        mine = [key for key, stored in known.items() if stored.owner == self._me]
        gained = self._adopt_all(mine)
        for key, (request, asked_at) in list(self._requests.items()):
            stored = known.get(key)
            partition = None
            if key in mine:
                pass
            elif (
                stored is not None and stored.owner == request.giver and not self._coordinator.view.may_acquire(stored)
            ):
                if not self._passed(asked_at, self._force_seconds):
                    continue
                partition = self._coordinator.leases.take_over(key, request.giver)
            if partition is not None:
                gained.append(partition)
            del self._requests[key]
        return gained

    @property
    def _force_seconds(self) -> float:
        """After how long a requested lease is taken by force.

        This is later than its owner's latest handover: the owner may poll with a delay, and clocks differ.
        """
        return self._handover_seconds + self._poll_seconds + self._coordinator.view.safety_margin.total_seconds()

    def _withdraw(self) -> list[Partition]:
        """Withdraw all requests; return the partitions that were handed over before others noticed."""
        requested = self._clear_requests()
        self._register()
        return self._adopt_all(requested)

    def _clear_requests(self) -> list[str]:
        keys = list(self._requests)
        self._requests.clear()
        return keys

    def _adopt_all(self, keys: Sequence[str]) -> list[Partition]:
        return self._coordinator.leases.adopt_each(keys)

    def _request_leases(self, todo: BalancePlan) -> None:
        used = sum(_size(request.key, request.giver) for request, _ in self._requests.values())
        left = MAX_LEASE_REQUESTS_BYTES - used
        for move in todo.requests:
            left -= _size(move.key, move.giver)
            if left < 0 and self._requests:
                break
            self._requests[move.key] = (
                LeaseRequest(key=move.key, giver=move.giver, since=self._clock.now()),
                self._clock.monotonic(),
            )
            self._coordinator.events.count(CoordinationMetric.HANDOVERS_REQUESTED)
            log.info(
                "partition requested: source=%s partition=%s owner=%s by=%s",
                self._coordinator.source, move.key, move.giver, self._me,
            )  # fmt: skip

    def _register(self) -> None:
        self._workers.register(
            max_leases=self._max_leases,
            slots=self.slots,
            lease_requests=[request for request, _ in self._requests.values()],
            replaces=self._replaces,
            delivers=self._delivers,
        )

    def _forget(self, partition_key: str, *, is_handed_over: bool = False) -> None:
        with self._lock:
            self._leaving.pop(partition_key, None)
            if is_handed_over:
                self._handed_over.add(partition_key)

    def _passed(self, since: float, seconds: float) -> bool:
        return self._clock.monotonic() - since >= seconds


def _successors(workers: Iterable[Worker]) -> dict[str, str]:
    """Return, by live worker, the live worker that takes over its leases; the one that registered first."""
    ordered = sorted(workers, key=lambda worker: (worker.started_at or worker.registered_until, worker.owner))
    owners = {worker.owner for worker in ordered}
    return {
        worker.replaces: worker.owner
        for worker in reversed(ordered)
        if worker.replaces in owners and worker.replaces != worker.owner
    }


def _size(key: str, giver: str) -> int:
    return len(key.encode()) + len(giver.encode()) + LEASE_REQUEST_BYTES


def _throughput(progress: Mapping[str, object]) -> float | None:
    value = progress.get("throughput")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
