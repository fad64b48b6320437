"""The coordinator: all operations of one owner on one source.

It differs from Data Prepper's coordinator on purpose. An owner is one process, not a host. Nothing shortens a lease. A
refused write is never repeated with the refused value. A lost response is distinguished from a lost lease. No partition
is held while a supplier runs. Failures are counted, and undelivered data is never COMPLETED.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from airflow_provider_coordination.coordination.claims import FAMILY as CLAIM_FAMILY
from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionUpdateError
from airflow_provider_coordination.coordination.held_leases import (
    DEFAULT_OWNERSHIP_TIMEOUT,
    DEFAULT_SAFETY_MARGIN,
    check_lease_times,
)
from airflow_provider_coordination.coordination.leases import Leases
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, Metrics, NoMetrics, PartitionEvents
from airflow_provider_coordination.coordination.partition import (
    ChangeKind,
    Partition,
    PartitionStatus,
    source_identifier,
)
from airflow_provider_coordination.coordination.partition_leases import PartitionLeases
from airflow_provider_coordination.coordination.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_FAMILY, GLOBAL_STATE_KEY, SourceView
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.supplier import Supplier, SupplierRuns
from airflow_provider_coordination.coordination.workers import FAMILY as WORKER_FAMILY
from airflow_provider_coordination.coordination.workers import Workers

log = logging.getLogger(__name__)


class SourceCoordinator:
    """Coordinates one source on behalf of one owner.

    It creates partitions, and handles partitions that no owner handles. Its attributes do the rest:

    - `view` reads the source; code that only reads needs only a `SourceView`;
    - `leases` acquires partitions, works on them, hands them over, and ends their leases; it also writes results of a
      partition whichever owner holds it, mainly for acknowledgment sets;
    - `workers` is the registry of workers, and `claims` the registry of the names that belong to a partition;
    - `events` counts and logs.

    :param store: the store of the partitions.
    :param source: the name of the source, without `|`.
    :param owner: the acting owner, from `new_owner`; must be unique to this process.
    :param prefix: separates installations that share a store; None for no prefix.
    :param ownership_timeout: how long a lease lasts from its acquisition or last renewal.
    :param safety_margin: the owner stops trusting a lease this long before its end, and acquires others' leases only
        this long after their end. The clocks of two machines may differ by up to this much. At most a quarter of
        `ownership_timeout`.
    :param retry_policy: decides what happens to partitions that fail.
    :param metrics: where metrics are sent.
    :param clock: the source of time.
    :raises ConfigurationError: if a name or a time is not valid.
    """

    def __init__(
        self,
        store: CoordinationStore,
        source: str,
        owner: str,
        *,
        prefix: str | None = None,
        ownership_timeout: timedelta = DEFAULT_OWNERSHIP_TIMEOUT,
        safety_margin: timedelta = DEFAULT_SAFETY_MARGIN,
        retry_policy: RetryPolicy | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not owner:
            raise ConfigurationError(f"owner {owner!r} is not usable: give the name of one worker process")
        check_lease_times(ownership_timeout, safety_margin)
        self.store = store
        self.source = source
        self.owner = owner
        self.view = SourceView(store, source, prefix=prefix, safety_margin=safety_margin, clock=clock)
        self.clock = self.view.clock
        self.events = PartitionEvents(metrics or NoMetrics(), source=source, store_kind=store.kind, owner=owner)
        self.claims = Claims(store, self.view.family(CLAIM_FAMILY), self.clock)
        self._ownership_timeout = ownership_timeout
        self.leases = PartitionLeases(
            self.view,
            owner,
            ownership_timeout=ownership_timeout,
            retry_policy=retry_policy or DEFAULT_RETRY_POLICY,
            claims=self.claims,
            events=self.events,
        )
        self.workers = Workers(
            store,
            self.view.family(WORKER_FAMILY),
            owner,
            self.leases_in(self.view.family(WORKER_FAMILY)),
            safety_margin=safety_margin,
            clock=self.clock,
        )
        self._suppliers = SupplierRuns(self.view, self.claims, self.leases_in, self.events, owner=owner)

    def initialize(self) -> None:
        """Make the store ready to use. Call it before any other method."""
        self.view.initialize()

    def leases_in(self, family: str) -> Leases:
        """Return an empty `Leases` of this owner in an item family."""
        return Leases(
            self.store,
            family,
            self.owner,
            ownership_timeout=self._ownership_timeout,
            safety_margin=self.view.safety_margin,
            clock=self.clock,
        )

    # Creation

    def create_partitions(self, partitions: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Create partitions that do not exist yet, in the given order.

        :param partitions: the initial progress of each partition, by key.
        :returns: the keys that were created; the other partitions existed and are not changed.
        :raises ConfigurationError: if a key is not valid; nothing is created then.
        """
        self.view.require_initialized()
        created = self.store.create([self.view.new(key, progress) for key, progress in partitions.items()])
        self.events.created(created)
        return created

    def share_claims(self, source: str) -> None:
        """Share the claims of another source permanently: a name that one source has claimed is never in the other.

        See `Claims.share`.

        :raises ConfigurationError: if this source has its own claims, or shares those of a third source.
        """
        self.view.require_initialized()
        self.claims.share(source_identifier(source, prefix=self.view.prefix, family=CLAIM_FAMILY))

    def supply(
        self,
        supplier: Supplier,
        *,
        wait_timeout: timedelta | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> list[str] | None:
        """Run a supplier if no other worker is running it, and create the partitions that it finds, page by page.

        The lease on the global state is renewed while the supplier runs, and always given back. A lease on it that an
        earlier try of this worker's task holds is taken over. If the lease is lost, or the source is suspended during
        the run, the run ends before its next page; the created partitions remain.

        :param supplier: finds new partitions.
        :param wait_timeout: wait for another worker that runs the supplier, then run it to its end. The wait lasts as
            long as the other worker's lease may last, and for `wait_timeout` if that worker keeps renewing it. A run
            whose lease is lost is repeated. None leaves the supplier to the other worker.
        :param sleep: waits for a number of seconds.
        :returns: the keys that were created; None if the source is suspended or, without `wait_timeout`, if another
            worker is running a supplier.
        :raises SupplierBusyError: with `wait_timeout`, if another worker keeps its lease for longer.
        :raises PartitionNotOwnedError: with `wait_timeout`, if the lease is lost in run after run.
        :raises ProgressError: if the stored global state is unreadable; the supplier does not run then.
        :raises ConfigurationError: if the supplier repeatedly yields names that are claimed.
        :raises Exception: whatever the supplier raises.
        """
        return self._suppliers.run(supplier, wait_timeout=wait_timeout, sleep=sleep)

    def get_next_partition(
        self, supplier: Supplier | None = None, *, force_after: timedelta | None = None
    ) -> Partition | None:
        """Lease the next available partition; if there is none, let a supplier find new ones first.

        The supplier runs only if no other worker is running it. No partition is held while it runs, so none is lost if
        it fails.

        :param supplier: finds new partitions; None to acquire existing ones only.
        :param force_after: run the supplier even if partitions may be available, if this worker has not run it for this
            long; None never does.
        :returns: the partition, or None if none is available.
        """
        due = force_after is not None and self._suppliers.idle_seconds > force_after.total_seconds()
        if supplier and due:
            self.supply(supplier)
        acquired = self.leases.acquire(1, otherwise=partial(self.supply, supplier) if supplier and not due else None)
        return acquired[0] if acquired else None

    # Partitions that no owner handles

    def reopen_due(self) -> list[str]:
        """Make every CLOSED partition that is due available; return the keys.

        A job that acquires partitions would take them anyway; this makes them visible to others. A partition keeps its
        position in the queue: it is queued as of the time it was due.
        """
        reopened = []
        now = self.clock.now()
        for partition in self.view.partitions(PartitionStatus.CLOSED):
            if partition.priority > now:
                break
            try:
                self.store.transact(
                    update=[partition.given_up(partition.priority).because(ChangeKind.REOPENED, "reopened: due")]
                )
            except PartitionUpdateError:  # another process acquired or reopened it
                continue
            reopened.append(partition.partition_key)
            log.info("partition reopened: source=%s partition=%s", self.source, partition.partition_key)
        self.events.count(CoordinationMetric.PARTITIONS_REOPENED, len(reopened))
        return reopened

    def give_up_owner(self, owner: str) -> list[str]:
        """Give back every lease of another owner that is known to be dead; return the partition keys.

        Its lease on the supplier is given back too, but is not among the keys. If the owner is alive after all, the
        store refuses its writes from now on.
        """
        leased = self.view.partitions(PartitionStatus.ASSIGNED)
        given_up = [partition.partition_key for partition in leased if self._give_up_for(owner, partition)]
        supplying = self.store.get(self.view.family(GLOBAL_STATE_FAMILY), GLOBAL_STATE_KEY)
        if supplying is not None:
            self._give_up_for(owner, supplying)
        self.events.count(CoordinationMetric.PARTITIONS_GIVEN_UP, len(given_up))
        self.workers.remove(owner)  # last, so that a worker that notices the removal finds the partitions free
        return given_up

    def _give_up_for(self, owner: str, partition: Partition) -> bool:
        """Give back a lease for its dead owner; return whether that owner still held it."""
        current: Partition | None = partition
        while current is not None and current.owner == owner:
            try:
                given_up = current.given_up(self.clock.now()).because(ChangeKind.GIVEN_UP, "given up: its task ended")
                self.store.transact(update=[given_up])
            except PartitionUpdateError:  # it was renewed or taken in between
                current = self.store.get(partition.source_identifier, partition.partition_key)
                continue
            log.info(
                "%s given up for its owner: source=%s partition=%s owner=%s",
                "partition" if partition.source_identifier == self.view.source_identifier else "supplier's lease",
                self.source, partition.partition_key, owner,
            )  # fmt: skip
            return True
        return False
