"""A job that merges rows into a table fails at each of its calls; another job continues, and replaces its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.depth import each_or_every
from tests.support.freezing import Strike
from tests.support.landed_tables import TABLES
from tests.support.merged_tables import MergedRows, a_sink, deliver
from tests.support.sinks import SinkTarget, an_attempt, under_next_lease
from tests.support.striking import STRIKES, calls_of, strike_at

pytestmark = [pytest.mark.integration, pytest.mark.deep]

BEFORE, OF_BOTH, LATER = {"z-1": [("x", 0), ("w", 9)]}, {"a-1": [("x", 1), ("y", 2)]}, {"b-1": [("x", 10)]}
EXPECTED = {"z-1": [9], "a-1": [2], "b-1": [10]}
FIRST, ATTEMPT, FOLLOWING = an_attempt("z-1"), an_attempt("a-1"), an_attempt("b-1")


class Delivery:
    """One delivery by a failing job, which another job takes over; a later batch replaces one of its rows.

    :param target: the table.
    """

    def __init__(self, target: SinkTarget) -> None:
        self.target = target
        self.is_taken_over = False
        deliver(a_sink(target), BEFORE, FIRST)

    def by_victim(self) -> None:
        """Deliver as a job does: it checks its ownership in the store before it commits."""
        sink = a_sink(self.target)
        sink.prepare([ATTEMPT], MergedRows(OF_BOTH))
        if not self.is_taken_over:
            sink.commit([ATTEMPT])
        sink.discard([ATTEMPT])

    def by_successor(self) -> None:
        """Deliver under the next lease, and deliver the later batch."""
        self.is_taken_over = True
        sink, again = a_sink(self.target), under_next_lease(ATTEMPT)
        sink.sweep({again.folder: again.fencing_token})
        deliver(sink, OF_BOTH, again)
        deliver(sink, LATER, FOLLOWING)


@pytest.mark.parametrize("strike", STRIKES)
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_failure_at_any_call_loses_or_reverts_no_row(tmp_path: Path, kind: str, strike: Strike) -> None:
    made = calls_of(Delivery(SinkTarget(TABLES[kind], tmp_path / "counted")))
    assert any(call in made for call in ("table.merge", "catalog.commit_table"))
    for point in each_or_every(12, len(made), "merging", kind, strike):
        delivery = Delivery(SinkTarget(TABLES[kind], tmp_path / str(point)))
        struck = strike_at(point, strike, delivery)
        assert delivery.target.visible == EXPECTED, struck
