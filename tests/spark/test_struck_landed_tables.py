"""A job that publishes landed files unchanged to a table is struck at each of its calls; another job continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_coordination.spark import table_sinks
from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.sinks.iceberg import catalog as catalogs
from airflow_provider_coordination.spark.sinks.iceberg import sink as sinks
from tests.support.depth import each_or_every
from tests.support.freezing import Strike
from tests.support.landed_tables import TABLES, LandedTable, deliver, prepare, taken_over
from tests.support.sinks import SinkTarget
from tests.support.striking import STRIKES, calls_of, strike_at

pytestmark = [pytest.mark.integration, pytest.mark.deep]

VALUES = {"a-1": [1, 2], "b-1": [3], "c-1": [4]}


@pytest.fixture(autouse=True)
def _some_files_are_merged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    [two, _, one] = (a.batch.file_bytes for a in landing_in(tmp_path / "sizes", "delta").land(VALUES))
    assert two > one
    monkeypatch.setattr(table_sinks, "SMALL_FILE_BYTES", two)
    monkeypatch.setattr(catalogs, "RETRY_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(sinks, "CONFLICT_PAUSE_SECONDS", 0.001)


def landing_in(folder: Path, kind: str) -> LandedTable:
    return LandedTable(SinkTarget(TABLES[kind], folder / "sink"), folder / "landing")


class Delivery:
    """One delivery by a victim, which another job takes over. One of the batches was rejected before.

    :param landing: what is delivered, and where.
    """

    def __init__(self, landing: LandedTable) -> None:
        self.landing = landing
        [first, *others] = landing.land(VALUES)
        deliver(landing.delivery(), [first])
        self.attempts: list[Attempt] = [taken_over(first, rejected=True), *others]
        self.is_taken_over = False

    def by_victim(self) -> None:
        """Deliver as a job does: it asks the store before it commits."""
        delivery = self.landing.delivery()
        prepare(delivery, self.attempts)
        if not self.is_taken_over:
            delivery.commit("main", self.attempts)
        delivery.discard(self.attempts)

    def by_successor(self) -> None:
        """Deliver under the next leases."""
        self.is_taken_over = True
        again = [taken_over(attempt) for attempt in self.attempts]
        delivery = self.landing.delivery()
        for attempt in again:
            delivery.sweep({attempt.folder: attempt.fencing_token})
        deliver(delivery, again)


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_struck_calls_lose_and_double_nothing(tmp_path: Path, kind: str, strike: Strike) -> None:
    made = calls_of(Delivery(landing_in(tmp_path / "counted", kind)))
    assert any(call.startswith("files.link") for call in made)
    for point in each_or_every(10, len(made), kind, strike):
        call = made[point - 1]
        if strike is Strike.TWICE and call == "table.write_deltalake":
            continue  # it reads rows that can be had once
        delivery = Delivery(landing_in(tmp_path / str(point), kind))
        struck = strike_at(point, strike, delivery)
        assert delivery.landing.target.visible == VALUES, struck
