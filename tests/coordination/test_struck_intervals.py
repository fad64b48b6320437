"""A task that reports hours fails at each of its calls to the store, or stands still while another one reports.

Whatever happens, Airflow has one event for each hour, in order, with what was delivered of the hour.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.intervals import Delivered, IntervalLedger
from airflow_provider_coordination.coordination.store import CoordinationStore
from tests.coordination.test_intervals import HOUR, MIDNIGHT, Source, hour
from tests.support.freezing import Strike
from tests.support.striking import STRIKES, calls_of, counted_store, strike_at

HOURS = 3


class Reporting:
    """A source with complete hours that were not reported, and the tasks that report them."""

    def __init__(self) -> None:
        self.source = Source()
        self.source.ledger.begin(HOUR, MIDNIGHT)
        for number in range(HOURS):
            self.source.tally(hour(number + 0.2), number + 1)
            self.source.tally(hour(number + 0.5), 10)

    def by_victim(self) -> None:
        """Report everything; a process that dies or fails does not succeed."""
        self._report("victim", counted_store(self.source.store))

    def by_successor(self) -> None:
        """Airflow notices what became of the victim's task, and other tasks report."""
        airflow = self.source.airflow
        airflow.states |= {by: "failed" for by, state in airflow.states.items() if state == "running"}
        for number in range(HOURS + 1):
            with suppress(CoordinationError):
                self._report(f"successor-{number}", self.source.store)

    def _report(self, name: str, store: CoordinationStore) -> None:
        coordinator = SourceCoordinator(store, "clicks", name, clock=self.source.clock)
        coordinator.initialize()
        ledger, airflow = IntervalLedger(coordinator.view), self.source.airflow
        for number in range(HOURS):
            by = f"{name}-{number}"
            airflow.states[by] = "running"
            taken = ledger.take(by, airflow.standing(by), Delivered(hour(HOURS)), lambda start, end: [])
            if taken is None:
                airflow.states[by] = "skipped"
                return
            airflow.succeed(by, taken)


POINTS = range(1, len(calls_of(Reporting())) + 1)


@pytest.mark.parametrize("strike", STRIKES, ids=str)
def test_no_call_loses_or_doubles_an_hour(strike: Strike) -> None:
    for point in POINTS:
        work = Reporting()
        struck = strike_at(point, strike, work)
        work.by_successor()
        expected = [(hour(number), number + 11) for number in range(HOURS)]
        assert work.source.airflow.events == expected, struck
        ledger = work.source.ledger.get()
        assert ledger is not None and ledger.late_records == 0, struck
