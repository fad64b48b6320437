"""Sharing a source's partitions among its workers: what one worker does about it, round after round.

What is free is acquired up to the share. Where nothing is free, a worker below its share asks one above it for a
lease, in its own item of the registry. The owner lands nothing new for that partition, delivers what is landed, and
makes the asking worker the owner in one conditional write; or, once its time is up, hands the partition over as it
stands: what is landed is delivered from its files by the next owner. A worker that is not answered takes the lease by
force. So every handover ends by a deadline on either side, by the monotonic clock of that side alone. The Kinesis
Client Library's graceful handoff is the model; there it may hang when one side forgets it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.balance import Lease, Member, Move, Plan, Rules, plan
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.lease_settings import LeaseSettings
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import WORKERS, CoordinationMetric
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus
from airflow_provider_coordination.coordination.workers import Wish, Worker

log = logging.getLogger(__name__)

LOOKS_PER_TIMEOUT = 6
"""So often in an ownership timeout a worker lists the partitions, and looks who asks it for some."""
PATIENCE_TIMEOUTS = 3
"""What was seen free for this many ownership timeouts is taken by whoever may hold more: the Kinesis Client Library's
rule for very old leases, but a lease is as old as this worker has known it to be free."""
MAX_WISHES_BYTES = 32 * 1024
"""How large the keys and owners are at most that a worker asks for at once: its item has to stay small."""
WISH_BYTES = 64
"""What a wish takes beside them."""
TRIES = 3


@dataclass(frozen=True)
class _Listed:
    """What a listing said about a partition."""

    key: str
    status: PartitionStatus
    owner: str | None
    is_awaiting: bool
    available_at: datetime
    throughput: float | None


@dataclass(frozen=True)
class _Asked:
    """Somebody asks this worker for a lease."""

    taker: str
    seen_at: float  # on the monotonic clock


class Balancer:
    """One worker's part in sharing the partitions of a source.

    `rebalance` is called once a round by the thread that works; `renew_due` by a `LeaseRenewer`, so that a long round
    costs neither the registration nor a deadline.

    :param coordinator: of the source, initialized.
    :param leases: how many leases it may have, and how it comes by them.
    :param max_leases: most leases that this worker holds where the settings say nothing; None for any number.
    :param expected_workers: how many workers count at the least during this one's first ownership timeout: the others
        may not be there yet.
    """

    def __init__(
        self,
        coordinator: SourceCoordinator,
        *,
        leases: LeaseSettings | None = None,
        max_leases: int | None = None,
        expected_workers: int = 1,
    ) -> None:
        self._coordinator = coordinator
        self._workers = coordinator.workers
        self._me = coordinator.owner
        self._clock = coordinator.clock
        leases = leases or LeaseSettings()
        self._balance_by = leases.balance_by
        self._max_leases = leases.max_leases or max_leases
        self._max_leases_to_steal = leases.max_leases_to_steal
        self._handover_seconds = leases.handover_timeout.total_seconds()
        self._expected_workers = expected_workers
        self._timeout_seconds = coordinator.leases.ownership_timeout.total_seconds()
        self._look_seconds = self._timeout_seconds / LOOKS_PER_TIMEOUT
        self._started = self._clock.monotonic()
        self._listing: dict[str, _Listed] = {}
        self._listed_at: float | None = None
        self._listed_for: frozenset[str] = frozenset()  # the workers that were there
        self._free_since: dict[str, float] = {}
        self._departed: set[str] = set()  # workers that were there and are gone, as long as leases are in their name
        self._wishes: dict[str, tuple[Wish, float]] = {}  # and when, on the monotonic clock
        self._held_before: frozenset[str] = frozenset()
        self._lock = threading.Lock()  # for what the renewal thread changes too
        self._live: dict[str, Worker] = {}
        self._looked_at: float | None = None
        self._leaving: dict[str, _Asked] = {}
        self._handed_over: set[str] = set()
        self._handing_over = threading.Lock()

    # For the thread that works

    def rebalance(self) -> list[Partition]:
        """Register, see who is there, and acquire, adopt and ask for what this worker should have.

        While the source is suspended it asks for nothing, and gains no more than what was handed over already.

        :returns: what it has gained.
        """
        self._say()
        self._look()
        if self._listed_for - self._live.keys():  # where others go, that may be why: nobody takes what they leave
            self._coordinator.view.suspensions.doubt()
        if self._coordinator.view.suspension() is not None:
            return self._withdraw()
        gained = self._answered()
        fresh = self._list_if_due(anew=bool(gained))
        todo = self._plan()
        for key in todo.drop:
            self._wishes.pop(key, None)
        acquired = self._coordinator.leases.acquire(todo.acquire) if todo.acquire else []
        if fresh and not acquired:  # nothing was free a moment ago
            self._wish(todo)
        self._say()
        self._held_before = frozenset(self._coordinator.leases.held)
        return gained + acquired

    @property
    def is_waiting(self) -> bool:
        """Whether it has asked for a lease and was not answered yet."""
        return bool(self._wishes)

    @property
    def leaving(self) -> dict[str, str]:
        """The held partitions that others ask for, each with who does: finish them and call `hand_over`."""
        with self._lock:
            return {key: asked.taker for key, asked in self._leaving.items()}

    def hand_over(self, partition_keys: Collection[str]) -> list[str]:
        """Hand partitions over to the workers that ask for them, as far as they still do; return which were.

        Their work is finished, or is left to the next owner.

        :raises StoreUnavailableError: if the store does not answer.
        """
        with self._handing_over:
            with self._lock:
                takers = {key: self._leaving[key].taker for key in partition_keys if key in self._leaving}
            given: list[str] = []
            for taker in dict.fromkeys(takers.values()):
                given += self._hand_over(taker, [key for key, its_taker in takers.items() if its_taker == taker])
            return given

    def was_handed_over(self, partition_key: str) -> bool:
        """Return, once, whether a partition that is held no more was handed over."""
        with self._handing_over, self._lock:  # the renewal thread may be about to note it
            known = partition_key in self._handed_over
            self._handed_over.discard(partition_key)
            return known

    def leave(self) -> None:
        """End this worker's part: others count it no more. Give its leases back afterwards.

        From now on nobody hands anything over to it; what was handed over already is held, to be given back.
        """
        self._workers.deregister()
        self._adopt_all(self._forget_wishes())

    # For the renewal thread

    @property
    def ownership_timeout(self) -> timedelta:
        """How long a registration runs without renewal."""
        return self._coordinator.leases.ownership_timeout

    def renew_due(self) -> None:
        """Renew the registration, see who asks for partitions, and hand over those that are not finished in time."""
        self._workers.renew_due()
        if self._looked_at is None:  # not registered yet
            return
        if self._clock.monotonic() - self._looked_at >= self._look_seconds:
            self._look()
        with self._lock:
            overdue = [k for k, asked in self._leaving.items() if self._passed(asked.seen_at, self._handover_seconds)]
        for key in overdue:
            log.warning("partition is handed over as it stands, its round takes too long: partition=%s", key)
        if overdue:
            self.hand_over(overdue)

    # Inside: looking

    def _look(self) -> None:
        """Read who is there, and what they ask this worker for."""
        workers = self._workers.live()
        held = self._coordinator.leases.held
        asked: dict[str, tuple[datetime, str]] = {}
        for worker in workers:
            for wish in worker.wishes if worker.owner != self._me else ():
                if wish.giver == self._me and wish.key in held:
                    first = (wish.since, worker.owner)
                    asked[wish.key] = min(first, asked.get(wish.key, first))
        now = self._clock.monotonic()
        with self._lock:
            known = {(key, was.taker): was for key, was in self._leaving.items()}
            self._leaving = {key: known.get((key, taker), _Asked(taker, now)) for key, (_, taker) in asked.items()}
            self._live = {worker.owner: worker for worker in workers}
            self._looked_at = now
            for key in asked.keys() - {key for key, _ in known}:
                log.info("partition is asked for: partition=%s by=%s", key, asked[key][1])
        self._coordinator.events.gauge(WORKERS, len(workers))

    def _list_if_due(self, *, anew: bool) -> bool:
        """List the unfinished partitions if what is known of them is old, or has changed; return whether it did.

        :param anew: whether it is known to have changed.
        """
        live, held = frozenset(self._live), self._coordinator.leases.held
        self._departed = (self._departed | self._listed_for) - live
        if (
            self._listed_at is not None
            and not anew
            and not self._passed(self._listed_at, self._look_seconds)
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
        for partition in partitions:  # one that changes its status while they are listed may come twice
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
        # Handed over, and this worker had given up asking.
        self._adopt_all([key for key, listed in self._listing.items() if listed.owner == self._me])

    # Inside: handing over

    def _hand_over(self, taker: str, keys: Sequence[str]) -> list[str]:
        given: list[str] = []
        for _ in range(TRIES):
            item = self._workers.item_of(taker)
            worker = None if item is None else Worker.of(item)
            wanted = set() if worker is None else {wish.key for wish in worker.wishes if wish.giver == self._me}
            for key in (key for key in keys if key not in wanted):
                log.info("partition stays, nobody asks for it any more: partition=%s", key)
                self._forget(key)
            if item is None or not (keys := [key for key in keys if key in wanted]):
                break
            results = self._coordinator.handover.give_each(keys, taker, unchanged=[item])
            keys, errors = [], []
            for key, result in results.items():
                if isinstance(result, PartitionUpdateError):
                    keys.append(key)  # the other worker was renewed in between, or asks for something else now
                elif isinstance(result, LOST):
                    log.info("%s", result)
                    self._forget(key)
                elif isinstance(result, Exception):
                    errors.append(result)
                else:
                    self._forget(key, is_handed_over=True)
                    given.append(key)
            if errors:
                raise errors[0]
            if not keys:
                break
        return given

    # Inside: deciding

    def _plan(self) -> Plan:
        leases, owners = self._leases(), dict(self._live)
        members = [
            Member(owner=worker.owner, max_leases=worker.max_leases)
            for worker in owners.values()
            if worker.owner != self._me
        ]
        silent = {lease.owner for lease in leases if lease.owner is not None} - owners.keys() - self._departed
        members += [Member(owner=owner, listens=False) for owner in silent if owner != self._me]
        members.append(Member(owner=self._me, max_leases=self._max_leases))
        starting = not self._passed(self._started, self._timeout_seconds)
        return plan(
            self._me,
            leases,
            members,
            self._under_way(),
            Rules(
                balance_by=self._balance_by,
                max_leases_to_steal=self._max_leases_to_steal,
                expected_workers=self._expected_workers if starting else 1,
                patience_seconds=PATIENCE_TIMEOUTS * self._timeout_seconds,
            ),
        )

    def _leases(self) -> list[Lease]:
        """Return what there is to share: not what rests, is parked, or waits for acknowledgments alone."""
        now, held = self._clock.now(), self._coordinator.leases.held
        free: list[_Listed] = []
        leases = []
        for key, listed in self._listing.items():
            if key in held:
                continue
            if listed.available_at <= now and listed.owner != self._me:
                free.append(listed)
            elif listed.status is PartitionStatus.ASSIGNED and not listed.is_awaiting and listed.owner != self._me:
                leases.append(Lease(key=key, owner=listed.owner, throughput=listed.throughput))
        for key, partition in held.items():
            leases.append(Lease(key=key, owner=self._me, throughput=_throughput(partition.progress)))
        monotonic = self._clock.monotonic()
        self._free_since = {listed.key: self._free_since.get(listed.key, monotonic) for listed in free}
        free.sort(key=lambda listed: (listed.owner is None, listed.available_at, listed.key))
        leases += [
            Lease(key=f.key, throughput=f.throughput, free_seconds=monotonic - self._free_since[f.key]) for f in free
        ]
        return leases

    def _under_way(self) -> list[Move]:
        others = [(wish, worker.owner) for worker in self._live.values() for wish in worker.wishes]
        asked = [pair for pair in others if pair[1] != self._me] + [
            (wish, self._me) for wish, _ in self._wishes.values()
        ]
        asked.sort(key=lambda pair: (pair[0].since, pair[1], pair[0].key))
        return [Move(key=wish.key, giver=wish.giver, taker=taker) for wish, taker in asked]

    # Inside: asking

    def _answered(self) -> list[Partition]:
        """See what became of what was asked for, and return what is this worker's now."""
        known = self._coordinator.view.get_each(list(self._wishes))
        mine = [key for key, stored in known.items() if stored.owner == self._me]
        gained = self._adopt_all(mine)
        for key, (wish, asked_at) in list(self._wishes.items()):
            stored = known.get(key)
            partition = None
            if key in mine:
                pass
            elif stored is not None and stored.owner == wish.giver and not self._coordinator.view.may_acquire(stored):
                if not self._passed(asked_at, self._force_seconds):
                    continue
                partition = self._coordinator.handover.take_over(key, wish.giver)
            if partition is not None:
                gained.append(partition)
            del self._wishes[key]
        return gained

    @property
    def _force_seconds(self) -> float:
        """After how long a lease that was asked for is taken by force.

        Later than its owner hands it over at the latest: that one may look only after a while, and clocks differ.
        """
        return self._handover_seconds + self._look_seconds + self._coordinator.view.safety_margin.total_seconds()

    def _withdraw(self) -> list[Partition]:
        """Ask for nothing any more; return what was handed over before that was known."""
        asked_for = self._forget_wishes()
        self._say()
        return self._adopt_all(asked_for)

    def _forget_wishes(self) -> list[str]:
        keys = list(self._wishes)
        self._wishes.clear()
        return keys

    def _adopt_all(self, keys: Sequence[str]) -> list[Partition]:
        return self._coordinator.handover.adopt_each(keys)

    def _wish(self, todo: Plan) -> None:
        left = MAX_WISHES_BYTES - sum(_size(wish.key, wish.giver) for wish, _ in self._wishes.values())
        for move in todo.ask:
            left -= _size(move.key, move.giver)
            if left < 0 and self._wishes:
                break
            self._wishes[move.key] = (
                Wish(key=move.key, giver=move.giver, since=self._clock.now()),
                self._clock.monotonic(),
            )
            self._coordinator.events.count(CoordinationMetric.HANDOVERS_ASKED)
            log.info(
                "partition asked for: source=%s partition=%s owner=%s by=%s",
                self._coordinator.source, move.key, move.giver, self._me,
            )  # fmt: skip

    def _say(self) -> None:
        self._workers.register(max_leases=self._max_leases, wishes=[wish for wish, _ in self._wishes.values()])

    def _forget(self, partition_key: str, *, is_handed_over: bool = False) -> None:
        with self._lock:
            self._leaving.pop(partition_key, None)
            if is_handed_over:
                self._handed_over.add(partition_key)

    def _passed(self, since: float, seconds: float) -> bool:
        return self._clock.monotonic() - since >= seconds


def _size(key: str, giver: str) -> int:
    return len(key.encode()) + len(giver.encode()) + WISH_BYTES


def _throughput(progress: Mapping[str, object]) -> float | None:
    value = progress.get("throughput")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
