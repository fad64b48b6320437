"""How a job acquires partitions: it takes leases, and removes what their previous owners left unfinished."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from airflow_provider_coordination.coordination.balancer import Balancer
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinds import progress_of
from airflow_provider_coordination.sources.landed import Failure
from airflow_provider_coordination.spark.active_partitions import ActivePartitions
from airflow_provider_coordination.spark.delivery import Delivery, by_halves
from airflow_provider_coordination.spark.landed_files import LandedFiles
from airflow_provider_coordination.spark.reading import Reading
from airflow_provider_coordination.spark.spark_errors import failure_text

log = logging.getLogger(__name__)


class PartitionAcquisition:
    """The acquisition of partitions by one job.

    :param coordinator: the source's coordinator.
    :param balancer: decides which leases the job should have.
    :param partitions: the partitions that the job works on.
    :param reading: decides which partitions the job can work on.
    :param files: the landed files.
    :param delivery: sweeps what previous owners prepared in the sinks.
    """

    def __init__(
        self,
        coordinator: SourceCoordinator,
        balancer: Balancer,
        partitions: ActivePartitions,
        reading: Reading,
        files: LandedFiles,
        delivery: Delivery,
    ) -> None:
        self._coordinator = coordinator
        self._balancer = balancer
        self._partitions = partitions
        self._reading = reading
        self._files = files
        self._delivery = delivery

    def acquire(self) -> bool:
        """Acquire the leases that this job should have; return whether it acquired some, or expects to soon."""
        acquired = self._balancer.rebalance()
        # Not only the leases that were acquired just now: an earlier response may have been lost in a store outage.
        started_partitions: dict[str, Partition] = {}
        for key, partition in self._coordinator.leases.held.items():
            if key not in self._partitions:
                with self._starting(key):
                    partition.with_progress(partition.progress)  # raises if what is stored is unreadable
                    progress_of(partition)
                    if self._reading.may_start(partition):
                        started_partitions[key] = partition
        for key in self._take_over(started_partitions):
            self._partitions.begin(key)
        return bool(acquired) or self._balancer.is_waiting

    def _take_over(self, partitions: Mapping[str, Partition]) -> list[str]:
        """Remove what previous owners of partitions left unfinished; return the keys of the partitions taken over."""
        landed = {key: progress_of(partition).landed for key, partition in partitions.items()}
        swept: dict[str, int] = {}
        for key, result in self._files.take_over(landed).items():
            with self._starting(key):
                if isinstance(result, Exception):
                    raise result
                swept[key] = result
        taken: list[str] = []
        for keys, error in by_halves(list(swept), self._sweep, "sweep of what previous owners prepared"):
            for key in keys:
                with self._starting(key):
                    if error is not None:
                        raise error
                    taken.append(key)
        for key in taken:
            if swept[key] or landed[key]:
                log.info(
                    "partition taken over: partition=%s files swept=%d, batches landed and not delivered=%d",
                    key, swept[key], len(landed[key]),
                )  # fmt: skip
        return taken

    def _sweep(self, keys: Sequence[str]) -> None:
        leases = self._coordinator.leases
        self._delivery.sweep({self._files.folder(key): leases.fencing_token(key) for key in keys})

    @contextmanager
    def _starting(self, key: str) -> Iterator[None]:
        """Fail only the partition that cannot be started, so that it does not delay the others."""
        try:
            yield
        except LOST as error:
            log.warning("partition %s is left to its next owner: %s", key, error)
            self._partitions.check_lease(key)
        except StoreUnavailableError:
            raise
        except Exception as error:  # an error of a partition's files fails only that partition
            self._partitions.fail(key, failure_text(error), Failure.of(error))
