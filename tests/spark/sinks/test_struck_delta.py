"""A job that delivers to a Delta table fails at each of its calls to the table and to files; another job continues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.sinks import owed
from tests.support.delta_tables import batches_in
from tests.support.depth import each_or_every
from tests.support.freezing import Strike
from tests.support.sinks import SINKS, BatchRows, SinkTarget, an_attempt, under_next_lease
from tests.support.striking import STRIKES, calls_of, strike_at

pytestmark = [pytest.mark.integration, pytest.mark.deep]

VALUES = {"a-1": [1, 2], "b-1": [3], "c-1": []}
FORMER = {"a-1": [-1], "b-1": [-2, -3], "c-1": [-4]}
EXPECTED = {"a-1": [1, 2], "b-1": [3]}


def nothing(target: SinkTarget) -> list[Attempt]:
    """The table does not exist."""
    return [an_attempt(batch_id) for batch_id in VALUES]


def others(target: SinkTarget) -> list[Attempt]:
    """The table has rows of other writers, and lacks a column."""
    write_deltalake(target.folder, pa.table({"_batch_id": ["z-1"]}))
    return [an_attempt(batch_id) for batch_id in VALUES]


def rejected(target: SinkTarget) -> list[Attempt]:
    """The table has the rejected batches in one file with another batch."""
    attempts = [an_attempt(batch_id) for batch_id in VALUES]
    target.deliver({**FORMER, "z-1": [9]}, [*attempts, an_attempt("z-1")])
    return [under_next_lease(attempt, rejected=True) for attempt in attempts]


BEGINNINGS = [nothing, others, rejected]


class Delivery:
    """One delivery by a failing job, which another job takes over.

    :param target: the table.
    :param attempts: what is delivered.
    """

    def __init__(self, target: SinkTarget, attempts: list[Attempt]) -> None:
        self.target = target
        self.attempts = attempts
        self.is_taken_over = False

    def by_victim(self) -> None:
        """Deliver as a job does: it checks its ownership in the store before it commits."""
        sink = self.target.sink()
        left = owed(sink, self.attempts)
        sink.prepare(left, BatchRows(VALUES))
        if not self.is_taken_over:
            sink.commit(left)
        sink.discard(left)

    def by_successor(self) -> None:
        """Deliver under the next leases."""
        self.is_taken_over = True
        sink = self.target.sink()
        again = [under_next_lease(attempt) for attempt in self.attempts]
        for attempt in again:
            sink.sweep({attempt.folder: attempt.fencing_token})
        self.target.deliver(VALUES, owed(sink, again), sink)


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("begin", BEGINNINGS)
def test_failure_at_any_call_loses_and_duplicates_nothing(
    tmp_path: Path, begin: Callable[[SinkTarget], list[Attempt]], strike: Strike
) -> None:
    counted = SinkTarget(SINKS["delta"], tmp_path / "counted")
    made = calls_of(Delivery(counted, begin(counted)))
    assert any(call in made for call in ("table.create_write_transaction", "table.write_deltalake"))
    for point in each_or_every(10, len(made), begin.__name__, strike):
        target = SinkTarget(SINKS["delta"], tmp_path / str(point))
        delivery = Delivery(target, begin(target))
        before = batches_in(target.folder).get("z-1")
        struck = strike_at(point, strike, delivery)
        expected = EXPECTED | ({} if before is None else {"z-1": before})
        assert batches_in(target.folder) == expected, struck
