"""Suppliers: what finds new partitions, run by one worker of the fleet at a time.

Which one is settled by a lease on the source's global-state item, where the supplier also keeps what it remembers from
run to run. Every partition is created in a transaction that renews this lease, so a worker that was overtaken creates
nothing, even if it is alive. The item's name and place are Data Prepper's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    NamesClaimedError,
    PartitionUpdateError,
    SupplierBusyError,
)
from airflow_provider_coordination.coordination.leases import Leases
from airflow_provider_coordination.coordination.owner import is_earlier_try
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, new_partition
from airflow_provider_coordination.coordination.renewal import LeaseRenewer
from airflow_provider_coordination.coordination.store import CoordinationStore

log = logging.getLogger(__name__)

FAMILY = "GLOBAL_STATE"
GLOBAL_STATE_KEY = "GLOBAL_STATE_SOURCE_PARTITION_KEY_FOR_CREATING_PARTITIONS"
PATIENCE = timedelta(minutes=10)
"""How long a task waits for a worker that runs the supplier and keeps its lease."""
POLL_SECONDS = 2.0
LOGGED_EVERY_SECONDS = 60.0
MAX_TRIES = 10
"""How often a page is created anew because others create some of its partitions at the same time."""


@dataclass(frozen=True)
class Page:
    """Some of the partitions that a supplier found.

    :param partitions: the first progress of each, by partition key; those that exist already are left alone.
    :param claims: the names that belong to a partition, by partition key: it is created only together with them, in one
        transaction, so that each name is ever claimed by one partition. One whose names are all claimed is left out.
        See `Claims`.
    :param state: what the supplier shall be given the next time it runs, written once the partitions are; None
        leaves what is stored.
    """

    partitions: Mapping[str, Mapping[str, Any]]
    state: Mapping[str, Any] | None = None
    claims: Mapping[str, Sequence[str]] = field(default_factory=dict)


Supplier = Callable[[Mapping[str, Any]], Iterable[Page]]
"""Given the state that it left the last time, empty at first, yields page after page.

Each page's partitions are created before the next is asked for, so that workers can begin while a long listing goes
on. It may be cut off between any two pages, and is then run again with the last state that was written.
"""


Claimed = tuple[Partition, Sequence[Partition]]
"""A partition with its claims."""


class GlobalState:
    """One worker's hold on a source's global state, for one run of a supplier.

    :param store: where the item is.
    :param leases: of the worker, in the item's family.
    :param source_identifier: the family, `[prefix|]source|GLOBAL_STATE`.
    :param owner: the worker.
    :param clock: where the time comes from.
    """

    def __init__(
        self, store: CoordinationStore, leases: Leases, source_identifier: str, owner: str, clock: Clock
    ) -> None:
        self._store = store
        self._leases = leases
        self._source_identifier = source_identifier
        self._owner = owner
        self._clock = clock

    def acquire(self) -> Partition | None:
        """Lease the item, which is made where it is missing.

        A lease of an earlier try of this worker's task is taken over, whether it has run out or not, and so is one of
        this worker itself, which it could not give back. If the earlier try is alive, its next write is refused.

        :returns: the item as another worker holds it; None if this one holds it now.
        """
        if self._leases.acquire_key(GLOBAL_STATE_KEY):
            return None
        found = self._item()
        if found is None:
            self._store.create([new_partition(self._source_identifier, GLOBAL_STATE_KEY, self._clock.now())])
            if self._leases.acquire_key(GLOBAL_STATE_KEY) or (found := self._item()) is None:
                return None
        holder = found.owner
        if holder is None or not (holder == self._owner or is_earlier_try(holder, than=self._owner)):
            return found
        if self._leases.take_over(GLOBAL_STATE_KEY, holder) is None:
            return found
        log.warning(
            "supplier's lease taken over: family=%s former_owner=%s owner=%s",
            self._source_identifier, holder, self._owner,
        )  # fmt: skip
        return None

    def _item(self) -> Partition | None:
        return self._store.get(self._source_identifier, GLOBAL_STATE_KEY)

    def pages(self, supplier: Supplier) -> Generator[Page]:
        """Run the supplier and yield its pages; each page's state is written when the next is asked for.

        The lease is renewed on a thread of its own while the supplier runs, however long it takes for a page.

        :raises ProgressError: if the stored state is unreadable: the supplier does not run.
        :raises PartitionNotOwnedError: if another worker took over.
        """
        state = self._leases.leased(GLOBAL_STATE_KEY)
        state.with_progress({})  # refused now, rather than after a long listing, if the state is unreadable
        with LeaseRenewer(self._leases):
            pages = iter(supplier(state.progress))  # one that is no generator does all its work here
            try:
                for page in pages:
                    if not self._leases.owns(GLOBAL_STATE_KEY):
                        self._leases.renew(GLOBAL_STATE_KEY)  # raises if another worker took over
                    yield page
                    if page.state is not None:
                        self._save(page.state)
            finally:
                if isinstance(pages, Generator):
                    pages.close()  # cut off between two pages, it cleans up now

    def create_absent(self, partitions: Sequence[Partition]) -> Iterator[Partition]:
        """Create those of these partitions that do not exist; yield those that were created.

        As many in one transaction as it has room for, which renews this worker's hold on the item.

        :raises PartitionNotOwnedError: if another worker took over; what the transactions before held is created.
        """
        room = self._store.transaction_items - 1
        for start in range(0, len(partitions), room):
            yield from self._create_absent(partitions[start : start + room])

    def _create_absent(self, partitions: Sequence[Partition]) -> Sequence[Partition]:
        for tries_left in reversed(range(MAX_TRIES)):
            family = partitions[0].source_identifier
            known = self._store.known(family, [partition.partition_key for partition in partitions])
            absent = [partition for partition in partitions if partition.partition_key not in known]
            if not absent:
                break
            try:
                self._create(absent)
                return absent
            except PartitionUpdateError:  # somebody created one of them since, such as a job the children of a shard
                if not tries_left:
                    raise
        return ()

    def create_all(self, claimed: Iterable[Claimed]) -> Iterator[Partition]:
        """Create partitions, each with its claims; yield those that were created.

        As many in one transaction as it has room for: a store takes longer to commit than to write some hundred claims.
        Where one is refused, each of its partitions is tried by itself.

        :raises ConfigurationError: as `create`, and so the others; those before it are created.
        """
        for together in _together(claimed, self._store.transaction_items - 1):
            try:
                if len(together) > 1:
                    self._create([item for partition, claims in together for item in (partition, *claims)])
                    yield from (partition for partition, _ in together)
                    continue
            except PartitionUpdateError:
                log.debug("%d partitions of %r are created one by one", len(together), self._source_identifier)
            yield from (partition for partition, claims in together if self.create(partition, claims))

    def create(self, partition: Partition, claims: Sequence[Partition]) -> bool:
        """Create a partition with its claims, in one transaction that renews this worker's hold on the item.

        It is refused if any of the names is claimed, whoever claimed it and whenever.

        :returns: whether it was created; False if all of its names are claimed already.
        :raises PartitionNotOwnedError: if another worker took over; nothing was written.
        :raises NamesClaimedError: if some of its names are claimed: the rest would belong to no partition.
        :raises ConfigurationError: if a partition of that key exists, and its names are not claimed.
        """
        try:
            self._create([partition, *claims])
        except PartitionUpdateError:
            self._require_all_claimed(partition, claims)
            return False
        return True

    def _create(self, new: Sequence[Partition]) -> None:
        self._leases.change(GLOBAL_STATE_KEY, self._leases.renewed, needs_trust=False, new=new)

    def _require_all_claimed(self, partition: Partition, claims: Sequence[Partition]) -> None:
        keys, key = [claim.partition_key for claim in claims], partition.partition_key
        claimed = self._store.known(claims[0].source_identifier, keys)
        if not claimed and self._store.known(partition.source_identifier, [key]):
            raise ConfigurationError(
                f"partition {key!r} exists, but not as the one that its names belong to, as {keys[0]!r}: let the "
                "supplier give each set of names a partition key of its own, or delete the partition"
            )
        if len(claimed) < len(keys):
            raise NamesClaimedError(
                f"partition {key!r}: {len(claimed)} of its {len(keys)} names are claimed by other partitions, as "
                f"{min(claimed, default=keys[0])!r}: let the supplier ask Claims.unclaimed for each of its pages"
            )

    def release(self) -> None:
        """Give the lease back, if it is held; never raises, since an error may be on its way already."""
        if not self._leases.holds(GLOBAL_STATE_KEY):
            return
        now = self._clock.now()
        try:
            self._leases.change(GLOBAL_STATE_KEY, lambda p: p.given_up(now), needs_trust=False)
        except CoordinationError as error:  # lost already, or it runs out by itself
            log.warning("the lease on %r could not be given back: %s", self._source_identifier, error)

    def _save(self, state: Mapping[str, Any]) -> None:
        self._leases.change(GLOBAL_STATE_KEY, lambda p: self._leases.renewed(p.with_progress(state)))


class Turn:
    """A worker's wait for the one that is running a supplier.

    It lasts as long as that one's lease, as it was first seen, may last; and for the patience, if the lease is renewed.

    :param owner: the worker that waits.
    :param source: the source's name.
    :param patience: how long to wait for a worker that keeps its lease.
    :param safety_margin: how long after its end others take a lease.
    :param clock: where the time comes from.
    :param sleep: waits that many seconds.
    """

    def __init__(
        self,
        owner: str,
        source: str,
        *,
        patience: timedelta,
        safety_margin: timedelta,
        clock: Clock,
        sleep: Callable[[float], None],
    ) -> None:
        self._owner = owner
        self._source = source
        self._patience = patience
        self._safety_margin = safety_margin
        self._clock = clock
        self._sleep = sleep
        self._began = clock.monotonic()
        self._until: float | None = None
        self._logged: tuple[str | None, float] | None = None

    def wait(self, held: Partition) -> None:
        """Wait a little for the worker that holds the global state, as it was seen just now.

        :raises SupplierBusyError: if it was waited for long enough, or is a later try of this worker's task.
        """
        now = self._clock.monotonic()
        if is_earlier_try(self._owner, than=held.owner or ""):
            raise SupplierBusyError(
                f"source {self._source!r}: a later try of this task is running the supplier, {held.owner}: this try, "
                f"{self._owner}, ends without having run it"
            )
        if self._until is None:
            self._until = now + max(self._patience.total_seconds(), self._lease_seconds(held) + POLL_SECONDS)
        if now >= self._until:
            raise SupplierBusyError(
                f"source {self._source!r}: another worker is running the supplier, {held.owner}, and has kept its "
                f"lease for the {now - self._began:.0f} s that {self._owner} waited: this one's did not run; try again "
                "later"
            )
        if held.status is PartitionStatus.ASSIGNED:
            self._log(held, now)
            self._sleep(min(POLL_SECONDS, self._until - now))

    def _lease_seconds(self, held: Partition) -> float:
        """Return how long it is until others may take a lease, if it is not renewed."""
        end = held.ownership_timeout or self._clock.now()
        return (end + self._safety_margin - self._clock.now()).total_seconds()

    def _log(self, held: Partition, now: float) -> None:
        if self._logged is not None and self._logged[0] == held.owner and now - self._logged[1] < LOGGED_EVERY_SECONDS:
            return
        self._logged = (held.owner, now)
        log.info(
            "waiting for the worker that runs the supplier: source=%s owner=%s holder=%s leased_until=%s",
            self._source, self._owner, held.owner, held.ownership_timeout,
        )  # fmt: skip


def _together(claimed: Iterable[Claimed], room: int) -> Iterator[list[Claimed]]:
    """Yield partitions as many at a time as there is room for, with their claims, and with no name twice."""
    together: list[Claimed] = []
    names: set[str] = set()
    for partition, claims in claimed:
        keys = {claim.partition_key for claim in claims}
        if together and (len(together) + 1 + len(names) + len(keys) > room or not names.isdisjoint(keys)):
            yield together
            together, names = [], set()
        together.append((partition, claims))
        names |= keys
    if together:
        yield together
