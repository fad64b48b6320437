"""Workers that share the partitions of a source, round by round, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_provider_coordination.coordination.balancer import Balancer
from airflow_provider_coordination.coordination.metrics import MetricTotals
from tests.coordination.fleet import Fleet, keys
from tests.support.clock import ManualClock

HANDOVER, LOOK = 30, 10


class Job:
    """One worker: its coordinator and its part in sharing, round by round."""

    def __init__(
        self, fleet: Fleet, name: str, clock: ManualClock | None = None, *, expected_workers: int = 1, **options: Any
    ) -> None:
        self.name, self.fleet = name, fleet
        self.totals = MetricTotals()
        self.coordinator = fleet.owner(name, clock, metrics=self.totals)
        self.balancer = Balancer(self.coordinator, expected_workers=expected_workers, **options)
        self.slow: set[str] = set()  # what it does not finish

    def round(self) -> list[str]:
        """A round: take, and finish what others ask for."""
        gained = self.balancer.rebalance()
        self.balancer.hand_over([key for key in self.balancer.leaving if key not in self.slow])
        return keys(gained)

    def renew(self) -> None:
        self.coordinator.leases.renew_due()
        self.balancer.renew_due()

    def stop(self) -> None:
        self.balancer.leave()
        self.coordinator.leases.give_up_all()

    @property
    def held(self) -> list[str]:
        return sorted(self.coordinator.leases.held)

    def count(self, metric: str) -> float:
        return self.totals.totals.get(metric, 0)


def rounds(jobs: Iterable[Job], count: int, every: float = LOOK) -> None:
    jobs = list(jobs)
    for _ in range(count):
        for job in jobs:
            job.renew()
            job.round()
        jobs[0].fleet.clock.advance(every)
