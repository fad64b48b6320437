"""Suppliers: what finds new partitions, run by one worker of the fleet at a time.

Which one is settled by a lease on the source's global-state item, where the supplier also keeps what it remembers from
run to run. The item's name and place are Data Prepper's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.leases import Leases
from airflow_provider_coordination.coordination.partition import Partition, new_partition
from airflow_provider_coordination.coordination.renewal import LeaseRenewer
from airflow_provider_coordination.coordination.store import CoordinationStore

log = logging.getLogger(__name__)

GLOBAL_STATE_KEY = "GLOBAL_STATE_SOURCE_PARTITION_KEY_FOR_CREATING_PARTITIONS"


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


class GlobalState:
    """One worker's hold on a source's global state, for one run of a supplier.

    :param store: where the item is.
    :param leases: of the worker, in the item's family.
    :param source_identifier: the family, `[prefix|]source|GLOBAL_STATE`.
    :param clock: where the time comes from.
    """

    def __init__(self, store: CoordinationStore, leases: Leases, source_identifier: str, clock: Clock) -> None:
        self._store = store
        self._leases = leases
        self._source_identifier = source_identifier
        self._clock = clock

    def acquire(self) -> bool:
        """Lease the item, which is made where it is missing; tell whether that succeeded."""
        if self._leases.acquire_key(GLOBAL_STATE_KEY):
            return True
        if self._store.get(self._source_identifier, GLOBAL_STATE_KEY) is not None:
            return False
        self._store.create([new_partition(self._source_identifier, GLOBAL_STATE_KEY, self._clock.now())])
        return self._leases.acquire_key(GLOBAL_STATE_KEY) is not None

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

    def create(self, partition: Partition, claims: Sequence[Partition]) -> bool:
        """Create a partition with its claims, in one transaction that renews this worker's hold on the item.

        The transaction is refused once another worker held the item, so nobody claims between the look and the write.

        :returns: whether it was created; False if all of its names are claimed already.
        :raises PartitionNotOwnedError: if another worker took over; nothing was written.
        :raises ConfigurationError: if some of its names are claimed, or a partition of that key exists without them:
            the rest of the names would belong to no partition.
        """
        if not self._are_new(partition, claims):
            return False
        self._leases.change(GLOBAL_STATE_KEY, self._leases.renewed, needs_trust=False, create=[partition, *claims])
        return True

    def _are_new(self, partition: Partition, claims: Sequence[Partition]) -> bool:
        keys, key = [claim.partition_key for claim in claims], partition.partition_key
        claimed = self._store.known(claims[0].source_identifier, keys)
        if len(claimed) == len(keys):
            return False
        if claimed:
            wrong = (
                f"partition {key!r}: {len(claimed)} of its {len(keys)} names are claimed by other partitions, as "
                f"{min(claimed)!r}: let the supplier ask Claims.unclaimed for each of its pages"
            )
        elif self._store.known(partition.source_identifier, [key]):
            wrong = (
                f"partition {key!r} exists, but not as the one that its names belong to, as {keys[0]!r}: let the "
                "supplier give each set of names a partition key of its own, or delete the partition"
            )
        else:
            return True
        self._leases.renew(GLOBAL_STATE_KEY)  # raises if it only looks like this because another worker took over
        raise ConfigurationError(wrong)

    def release(self) -> None:
        """Give the lease back; never raises, since an error may be on its way already."""
        now = self._clock.now()
        try:
            self._leases.change(GLOBAL_STATE_KEY, lambda p: p.given_up(now), needs_trust=False)
        except CoordinationError as error:  # lost already, or it runs out by itself
            log.warning("the lease on %r could not be given back: %s", self._source_identifier, error)

    def _save(self, state: Mapping[str, Any]) -> None:
        self._leases.change(GLOBAL_STATE_KEY, lambda p: self._leases.renewed(p.with_progress(state)))
