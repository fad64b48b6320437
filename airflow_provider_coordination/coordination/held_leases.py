"""The leases that a process holds: how long they last, who may act and until when, and a thread that renews them.

An owner knows them without asking the store. Renewal goes on while reading or a sink is slow.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Protocol

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    PartitionNotFoundError,
    PartitionNotOwnedError,
)
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.store import CoordinationStore

DEFAULT_OWNERSHIP_TIMEOUT = timedelta(seconds=60)
DEFAULT_SAFETY_MARGIN = timedelta(seconds=2)
DEFAULT_HANDOVER_TIMEOUT = timedelta(seconds=30)

log = logging.getLogger(__name__)


class Renewable(Protocol):
    """An object that holds leases."""

    @property
    def ownership_timeout(self) -> timedelta:
        """How long a lease lasts without renewal."""
        ...

    def renew_due(self) -> object:
        """Renew every lease of which more than a third has passed."""
        ...


class LeaseRenewer:
    """Renews leases while the `with` block runs.

    A lease is renewed once a third of it has passed, so two attempts may fail before it is lost. An error is logged and
    the next attempt follows. Leases that cannot be renewed expire by the coordinator's own clock.

    :param leases: the objects to renew, in this order: a coordinator, separate leases, a balancer. A failure of one
        does not affect the others.
    :param interval: how often to check for due leases, at most a twelfth of the shortest ownership timeout; None for a
        twenty-fourth, so that a lease is renewed at most a twelfth after it is due, however many leases there are.
    """

    def __init__(self, *leases: Renewable, interval: timedelta | None = None) -> None:
        self._leases = leases
        twelfth = min(each.ownership_timeout for each in leases) / 12
        self._interval_seconds = min(twelfth, interval or twelfth / 2).total_seconds()
        self._stopped = threading.Event()
        run = contextvars.copy_context().run  # so that its log lines name the same job as those of this thread
        self._thread = threading.Thread(target=run, args=(self._run,), name="lease-renewal", daemon=True)

    def __enter__(self) -> LeaseRenewer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            for leases in self._leases:
                try:
                    leases.renew_due()
                except CoordinationError as error:
                    log.warning("leases could not be renewed, trying again: %s", error)
                except Exception:
                    log.exception("leases could not be renewed, trying again")


def check_lease_times(ownership_timeout: timedelta, safety_margin: timedelta) -> None:
    """Check that the ownership timeout is long enough for the safety margin on both sides.

    :raises ConfigurationError: if it is not.
    """
    if safety_margin < timedelta(0) or ownership_timeout < 4 * safety_margin or ownership_timeout <= timedelta(0):
        raise ConfigurationError(
            f"ownership_timeout {ownership_timeout.total_seconds():g} s with safety_margin "
            f"{safety_margin.total_seconds():g} s is not usable: make the timeout positive and "
            "at least four times the margin"
        )


@dataclass(frozen=True)
class HeldLease:
    """A lease, as its owner knows it.

    :param partition: the partition, as last written.
    :param fencing_token: the version that the acquisition wrote, or a later one.
    :param trusted_until: when the owner stops trusting it, on the monotonic clock, in seconds.
    :param measured_to: the end of the lease from which `trusted_until` was computed (aware); None if it was not.
    :param in_doubt: whether a release or deletion of it got no response.
    """

    partition: Partition
    fencing_token: int
    trusted_until: float
    measured_to: datetime | None
    in_doubt: bool = False


@dataclass(frozen=True)
class RequestTime:
    """When a request to the store was made, by both clocks."""

    monotonic: float
    now: datetime


class HeldLeases:
    """The leases of one owner in one item family.

    :param store: the store of the partitions.
    :param source_identifier: the item family.
    :param owner: the owner's name; unique to this process.
    :param ownership_timeout: how long a lease lasts from its acquisition or last renewal.
    :param safety_margin: how long before its end a lease is no longer trusted.
    :param clock: the source of time.
    """

    def __init__(
        self,
        store: CoordinationStore,
        source_identifier: str,
        owner: str,
        *,
        ownership_timeout: timedelta,
        safety_margin: timedelta,
        clock: Clock,
    ) -> None:
        self.owner = owner
        self.ownership_timeout = ownership_timeout
        self._store = store
        self._source_identifier = source_identifier
        self._safety_margin = safety_margin
        self._clock = clock
        self._leases: dict[str, HeldLease] = {}
        self._lock = threading.RLock()

    @property
    def held(self) -> dict[str, Partition]:
        """The partitions leased to this owner, by key, each as last written."""
        with self._lock:
            return {key: lease.partition for key, lease in self._leases.items()}

    def holds(self, partition_key: str) -> bool:
        """Return whether a partition is leased to this owner."""
        return self.find(partition_key) is not None

    def find(self, partition_key: str) -> Partition | None:
        """Return a partition that is leased to this owner, as last written; None if it is not."""
        with self._lock:
            lease = self._leases.get(partition_key)
            return None if lease is None else lease.partition

    def owns(self, partition_key: str) -> bool:
        """Return whether the owner may act for the partition now, judged by its own monotonic clock only."""
        with self._lock:
            lease = self._leases.get(partition_key)
            return lease is not None and not lease.in_doubt and self._runs(lease)

    def leased(self, partition_key: str) -> Partition:
        """Return a held partition, as last written.

        :raises PartitionNotOwnedError: if it is not held.
        """
        with self._lock:
            return self._held_lease(partition_key).partition

    def fencing_token(self, partition_key: str) -> int:
        """Return the version that this owner's acquisition wrote, or a later one; larger than any previous owner's.

        :raises PartitionNotOwnedError: if the partition is not held.
        """
        with self._lock:
            return self._held_lease(partition_key).fencing_token

    def _request_time(self) -> RequestTime:
        return RequestTime(self._clock.monotonic(), self._clock.now())

    def _hold(self, partition: Partition, fencing_token: int, requested: RequestTime) -> None:
        # The lease counts from the request, not from the response. How long it lasts is measured only once, when its
        # end becomes known, because the wall clock may be set at any time.
        known = self._leases.get(partition.partition_key)
        end = partition.ownership_timeout
        assert end is not None
        if known and known.measured_to == end:
            trusted_until = known.trusted_until
        else:
            trusted_until = requested.monotonic + (end - requested.now - self._safety_margin).total_seconds()
        self._leases[partition.partition_key] = HeldLease(partition, fencing_token, trusted_until, measured_to=end)

    def _runs(self, lease: HeldLease) -> bool:
        return self._clock.monotonic() < lease.trusted_until

    def _require_trust(self, lease: HeldLease) -> None:
        if not self._runs(lease):
            raise PartitionNotOwnedError(
                f"partition {lease.partition.partition_key!r}: the lease of {self.owner} expired before it was renewed"
            )

    def _lost(self, partition_key: str, stored: Partition | None) -> Exception:
        if stored is None:
            return PartitionNotFoundError(f"partition {partition_key!r} of {self._source_identifier!r} is gone")
        return PartitionNotOwnedError(
            f"partition {partition_key!r}: the lease of {self.owner} is lost; the partition is now {stored.status}, "
            f"owner {stored.owner}, version {stored.version}"
        )

    def _held_lease(self, partition_key: str) -> HeldLease:
        try:
            return self._leases[partition_key]
        except KeyError:
            raise self._not_held(partition_key) from None

    def _not_held(self, partition_key: str) -> PartitionNotOwnedError:
        return PartitionNotOwnedError(
            f"partition {partition_key!r} of {self._source_identifier!r} is not leased to {self.owner}"
        )
