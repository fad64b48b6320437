"""Suppliers find new partitions. One worker of the fleet at a time runs a source's supplier, page by page.

A lease on the source's global-state item decides which one. The supplier also keeps its state between runs in that
item. Every partition is created in a transaction that renews this lease, so a worker that lost the lease creates
nothing, even if it is alive. The key and the family of the item are Data Prepper's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    NamesClaimedError,
    PartitionUpdateError,
    SupplierBusyError,
)
from airflow_provider_coordination.coordination.held_leases import LeaseRenewer
from airflow_provider_coordination.coordination.leases import LOST, Leases
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, PartitionEvents
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, new_partition
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_FAMILY, GLOBAL_STATE_KEY, SourceView
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.workers import is_earlier_try

log = logging.getLogger(__name__)

SUPPLIER_WAIT_TIMEOUT = timedelta(minutes=10)
"""How long a task waits for another worker that runs the supplier and keeps renewing its lease."""
POLL_SECONDS = 2.0
LOGGED_EVERY_SECONDS = 60.0
MAX_TRIES = 10
"""How often the creation of a page is retried because others create some of its partitions at the same time."""


@dataclass(frozen=True)
class Page:
    """Some of the partitions that a supplier found.

    :param partitions: the initial progress of each partition, by key; existing partitions are not changed.
    :param claims: the names that belong to a partition, by partition key. The partition is created together with its
        claims in one transaction, so that only one partition ever claims a name. A partition whose names are all
        claimed is skipped. See `Claims`.
    :param state: the state for the supplier's next run, which is written after the partitions are created; None keeps
        the stored state.
    """

    partitions: Mapping[str, Mapping[str, Any]]
    state: Mapping[str, Any] | None = None
    claims: Mapping[str, Sequence[str]] = field(default_factory=dict)


Supplier = Callable[[Mapping[str, Any]], Iterable[Page]]
"""A function of the state that its last run stored, empty at first, which yields page after page.

The partitions of each page are created before the next page is requested, so that workers can start during a long
listing. A run may be interrupted between two pages. The next run then gets the last state that was written.
"""


ClaimedPartition = tuple[Partition, Sequence[Partition]]
"""A partition with its claims."""


class GlobalState:
    """One worker's lease on a source's global state during one run of a supplier.

    :param store: the store of the item.
    :param leases: the worker's leases in the item's family.
    :param source_identifier: the family, `[prefix|]source|GLOBAL_STATE`.
    :param owner: the worker.
    :param clock: the source of time.
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
        """Lease the item, and create it if it does not exist.

        A lease of an earlier try of this worker's task is taken over, expired or not. So is a lease of this worker
        itself that it could not give back. If the earlier try is alive, its next write is refused.

        :returns: the item if another worker holds it; None if this worker holds it now.
        """
        if self._leases.acquire_key(GLOBAL_STATE_KEY):
            return None
        item = self._item()
        if item is None:
            self._store.create([new_partition(self._source_identifier, GLOBAL_STATE_KEY, self._clock.now())])
            if self._leases.acquire_key(GLOBAL_STATE_KEY) or (item := self._item()) is None:
                return None
        holder = item.owner
        if holder is None or not (holder == self._owner or is_earlier_try(holder, than=self._owner)):
            return item
        if self._leases.take_over(GLOBAL_STATE_KEY, holder) is None:
            return item
        log.warning(
            "supplier's lease taken over: source=%s previous_owner=%s owner=%s",
            self._source_identifier.rpartition("|")[0], holder, self._owner,
        )  # fmt: skip
        return None

    def _item(self) -> Partition | None:
        return self._store.get(self._source_identifier, GLOBAL_STATE_KEY)

    def pages(self, supplier: Supplier) -> Generator[Page]:
        """Run the supplier and yield its pages. The state of a page is written when the next one is requested.

        A separate thread renews the lease while the supplier runs, however long a page takes.

        :raises ProgressError: if the stored state is unreadable; the supplier does not run then.
        :raises PartitionNotOwnedError: if another worker took over.
        """
        state = self._leases.leased(GLOBAL_STATE_KEY)
        state.with_progress({})  # an unreadable state fails now, not after a long listing
        with LeaseRenewer(self._leases):
            pages = iter(supplier(state.progress))  # a supplier that is no generator does all its work here
            try:
                for page in pages:
                    if not self._leases.owns(GLOBAL_STATE_KEY):
                        self._leases.renew(GLOBAL_STATE_KEY)  # raises if another worker took over
                    yield page
                    if page.state is not None:
                        self._save(page.state)
            finally:
                if isinstance(pages, Generator):
                    pages.close()  # if interrupted between two pages, it cleans up now

    def create_absent(self, partitions: Sequence[Partition]) -> Iterator[Partition]:
        """Create the partitions that do not exist; yield the created ones.

        Each transaction creates as many as it has room for and renews this worker's lease on the item.

        :raises PartitionNotOwnedError: if another worker took over; the partitions of earlier transactions are created.
        """
        room = self._store.transaction_items - 1
        for start in range(0, len(partitions), room):
            yield from self._create_absent(partitions[start : start + room])

    def _create_absent(self, partitions: Sequence[Partition]) -> Sequence[Partition]:
        for tries_left in reversed(range(MAX_TRIES)):
            family = partitions[0].source_identifier
            known = self._store.existing_keys(family, [partition.partition_key for partition in partitions])
            absent = [partition for partition in partitions if partition.partition_key not in known]
            if not absent:
                break
            try:
                self._create(absent)
                return absent
            except PartitionUpdateError:  # another process created one of them, such as a job that creates child shards
                if not tries_left:
                    raise
        return ()

    def create_all(self, claimed: Iterable[ClaimedPartition]) -> Iterator[Partition]:
        """Create partitions, each one with its claims; yield the created ones.

        Each transaction creates as many as it has room for: a commit takes longer than some hundred claims. If a
        transaction is refused, its partitions are created one by one.

        :raises ConfigurationError: as `create`, which lists the other errors; the partitions before it are created.
        """
        for group in _groups(claimed, self._store.transaction_items - 1):
            try:
                if len(group) > 1:
                    self._create([item for partition, claims in group for item in (partition, *claims)])
                    yield from (partition for partition, _ in group)
                    continue
            except PartitionUpdateError:
                log.debug("%d partitions of %r are created one by one", len(group), self._source_identifier)
            yield from (partition for partition, claims in group if self.create(partition, claims))

    def create(self, partition: Partition, claims: Sequence[Partition]) -> bool:
        """Create a partition with its claims in one transaction, which renews this worker's lease on the item.

        The store refuses it if any of the names is already claimed.

        :returns: whether it was created; False if all of its names are claimed already.
        :raises PartitionNotOwnedError: if another worker took over; nothing is written then.
        :raises NamesClaimedError: if only some of its names are claimed: the others would belong to no partition.
        :raises ConfigurationError: if a partition with that key exists but its names are not claimed.
        """
        try:
            self._create([partition, *claims])
        except PartitionUpdateError:
            self._require_all_claimed(partition, claims)
            return False
        return True

    def _create(self, new: Sequence[Partition]) -> None:
        self._leases.change(GLOBAL_STATE_KEY, self._leases.renewed, requires_trust=False, new=new)

    def _require_all_claimed(self, partition: Partition, claims: Sequence[Partition]) -> None:
        keys, key = [claim.partition_key for claim in claims], partition.partition_key
        claimed = self._store.existing_keys(claims[0].source_identifier, keys)
        if not claimed and self._store.existing_keys(partition.source_identifier, [key]):
            raise ConfigurationError(
                f"partition {key!r} exists, but names such as {keys[0]!r} do not belong to it: let the supplier use a "
                "separate partition key for each set of names, or delete the partition"
            )
        if len(claimed) < len(keys):
            raise NamesClaimedError(
                f"partition {key!r}: other partitions claim {len(claimed)} of its {len(keys)} names, such as "
                f"{min(claimed, default=keys[0])!r}: let the supplier call Claims.unclaimed for each of its pages"
            )

    def release(self) -> None:
        """Give the lease back if it is held. Never raises, because another error may be propagating."""
        if not self._leases.holds(GLOBAL_STATE_KEY):
            return
        now = self._clock.now()
        try:
            self._leases.change(GLOBAL_STATE_KEY, lambda p: p.given_up(now), requires_trust=False)
        except CoordinationError as error:  # it is lost already, or will expire
            log.warning("the lease on %r could not be given back: %s", self._source_identifier, error)

    def _save(self, state: Mapping[str, Any]) -> None:
        self._leases.change(GLOBAL_STATE_KEY, lambda p: self._leases.renewed(p.with_progress(state)))


class SupplierWait:
    """Waits for another worker that is running a supplier.

    The wait lasts as long as that worker's lease may last when it is first read, and for `wait_timeout` if the lease is
    renewed.

    :param owner: the waiting worker.
    :param source: the name of the source.
    :param wait_timeout: how long to wait for a worker that keeps renewing its lease.
    :param safety_margin: how long after its end a lease can be acquired.
    :param clock: the source of time.
    :param sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        owner: str,
        source: str,
        *,
        wait_timeout: timedelta,
        safety_margin: timedelta,
        clock: Clock,
        sleep: Callable[[float], None],
    ) -> None:
        self._owner = owner
        self._source = source
        self._wait_timeout = wait_timeout
        self._safety_margin = safety_margin
        self._clock = clock
        self._sleep = sleep
        self._began = clock.monotonic()
        self._until: float | None = None
        self._logged: tuple[str | None, float] | None = None

    def wait(self, held: Partition) -> None:
        """Wait a little for the worker that holds the global state.

        :param held: the global-state item as it was just read.
        :raises SupplierBusyError: if the wait has lasted long enough, or the holder is a later try of this worker's
            task.
        """
        now = self._clock.monotonic()
        if is_earlier_try(self._owner, than=held.owner or ""):
            raise SupplierBusyError(
                f"source {self._source!r}: a later try of this task, {held.owner}, is running the supplier; this try, "
                f"{self._owner}, ends without running it"
            )
        if self._until is None:
            self._until = now + max(self._wait_timeout.total_seconds(), self._lease_seconds(held) + POLL_SECONDS)
        if now >= self._until:
            raise SupplierBusyError(
                f"source {self._source!r}: another worker, {held.owner}, is running the supplier and kept its lease "
                f"for the {now - self._began:.0f} s that {self._owner} waited; this worker's supplier did not run. "
                "Try again later"
            )
        if held.status is PartitionStatus.ASSIGNED:
            self._log(held, now)
            self._sleep(min(POLL_SECONDS, self._until - now))

    def _lease_seconds(self, held: Partition) -> float:
        """Return the seconds until others may acquire a lease, if it is not renewed."""
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


def _groups(claimed: Iterable[ClaimedPartition], room: int) -> Iterator[list[ClaimedPartition]]:
    """Yield partitions with their claims in groups that fit the room and contain no name twice."""
    group: list[ClaimedPartition] = []
    names: set[str] = set()
    for partition, claims in claimed:
        keys = {claim.partition_key for claim in claims}
        if group and (len(group) + 1 + len(names) + len(keys) > room or not names.isdisjoint(keys)):
            yield group
            group, names = [], set()
        group.append((partition, claims))
        names |= keys
    if group:
        yield group


MAX_RUNS = 10
"""How often a supplier is run if another source with the same claims was faster, or if its lease was lost."""


class SupplierRuns:
    """Runs the suppliers of one source for one worker. Safe to use from several threads.

    :param view: the view of the source.
    :param claims: the claims of the source.
    :param leases_in: returns this worker's leases in an item family.
    :param events: where events are logged and counted.
    :param owner: the worker.
    """

    def __init__(
        self,
        view: SourceView,
        claims: Claims,
        leases_in: Callable[[str], Leases],
        events: PartitionEvents,
        *,
        owner: str,
    ) -> None:
        self._view = view
        self._claims = claims
        self._leases_in = leases_in
        self._events = events
        self._owner = owner
        self._family = view.family(GLOBAL_STATE_FAMILY)
        self._last_run_at = view.clock.monotonic()
        self._running = threading.Lock()

    @property
    def idle_seconds(self) -> float:
        """The seconds since this worker last ran a supplier, or was started."""
        return self._view.clock.monotonic() - self._last_run_at

    def run(
        self, supplier: Supplier, *, wait_timeout: timedelta | None, sleep: Callable[[float], None]
    ) -> list[str] | None:
        """Run a supplier unless another worker runs it; `SourceCoordinator.supply` has the parameters and errors.

        :returns: the keys that were created; None if no supplier was run.
        """
        view = self._view
        view.require_initialized()
        if view.suspension() is not None:
            return None
        if not self._running.acquire(timeout=0 if wait_timeout is None else wait_timeout.total_seconds()):
            if wait_timeout is not None:
                raise SupplierBusyError(f"source {view.source!r}: another thread of {self._owner} runs the supplier")
            log.info("supplier left to another thread: source=%s owner=%s", view.source, self._owner)
            return None
        try:
            return self._run(supplier, None if wait_timeout is None else self._new_wait(wait_timeout, sleep))
        finally:
            self._running.release()

    def _run(self, supplier: Supplier, wait: SupplierWait | None) -> list[str] | None:
        created: list[str] = []
        runs_lost = 0
        while self._view.suspension() is None:
            try:
                holder = self._run_once(supplier, created)
            except LOST as error:
                log.warning("supplier ends early: source=%s owner=%s: %s", self._view.source, self._owner, error)
                if wait is None:
                    return created
                runs_lost += 1
                if runs_lost == MAX_RUNS:
                    raise
                continue
            if holder is None:
                return created
            if wait is None:
                log.info(
                    "supplier left to another worker: source=%s owner=%s holder=%s",
                    self._view.source, self._owner, holder.owner,
                )  # fmt: skip
                return None
            wait.wait(holder)
        return created or None

    def _run_once(self, supplier: Supplier, created: list[str]) -> Partition | None:
        """Run a supplier and add the created keys to `created`.

        :returns: the global state if another worker holds it; None if the supplier ran.
        """
        self._last_run_at = self._view.clock.monotonic()
        leases = self._leases_in(self._family)
        state = GlobalState(self._view.store, leases, self._family, self._owner, self._view.clock)
        try:
            if (held := state.acquire()) is not None:
                return held
            log.info("supplier starts: source=%s owner=%s", self._view.source, self._owner)
            try:
                self._create_pages(supplier, state, created)
            except BaseException:
                self._events.count(CoordinationMetric.SUPPLIER_FAILURES)
                raise
        finally:
            state.release()
        self._events.count(CoordinationMetric.PARTITION_CREATION_SUPPLIER_INVOCATIONS)
        log.info("supplier ends: source=%s partitions created=%d", self._view.source, len(created))
        return None

    def _new_wait(self, wait_timeout: timedelta, sleep: Callable[[float], None]) -> SupplierWait:
        return SupplierWait(
            self._owner,
            self._view.source,
            wait_timeout=wait_timeout,
            safety_margin=self._view.safety_margin,
            clock=self._view.clock,
            sleep=sleep,
        )

    def _create_pages(self, supplier: Supplier, state: GlobalState, created: list[str]) -> None:
        """Create a supplier's partitions, adding the keys to `created`; run it again if others claimed its names."""
        for run in range(MAX_RUNS):
            try:
                with closing(state.pages(supplier)) as pages:
                    for page in pages:
                        if self._view.suspension() is not None:
                            log.warning("supplier ends early: source=%s owner=%s", self._view.source, self._owner)
                            return
                        created.extend(self._create(page, state))  # partitions created before an error remain
                return
            except NamesClaimedError as error:
                if run == MAX_RUNS - 1:
                    raise ConfigurationError(f"{error}; the supplier was run {MAX_RUNS} times") from error
                log.info("supplier runs again: source=%s: %s", self._view.source, error)

    def _create(self, page: Page, state: GlobalState) -> Iterator[str]:
        """Create the partitions of a page, with their claims; yield the created keys."""
        if unknown := page.claims.keys() - page.partitions.keys():
            raise ConfigurationError(
                f"the page claims names for {min(unknown)!r}, which is not in its 'partitions'; add it there, or "
                "remove it from 'claims'"
            )
        plain = [self._view.new(key, progress) for key, progress in page.partitions.items() if not page.claims.get(key)]
        for created in state.create_absent(plain):
            self._events.created([created.partition_key])
            yield created.partition_key
        claimed = (
            (self._view.new(key, page.partitions[key]), self._claims.of(key, names))
            for key, names in page.claims.items()
            if names
        )
        for created in state.create_all(claimed):
            self._events.created([created.partition_key])
            yield created.partition_key
