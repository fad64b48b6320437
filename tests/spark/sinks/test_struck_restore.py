"""Somebody takes a table back to an earlier version between two calls of a delivery, or after it failed at one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from airflow_provider_coordination.spark.delivery import Attempt
from airflow_provider_coordination.spark.sinks import Sink, owed
from tests.support.depth import at_depth
from tests.support.landed_tables import TABLES
from tests.support.merged_tables import MergedRows, a_sink
from tests.support.restored_tables import reports_of, restore, version_of
from tests.support.seed import some_of
from tests.support.sinks import BatchRows, SinkTarget, an_attempt, under_next_lease
from tests.support.striking import STRIKES, calls_of, strike_at

pytestmark = [pytest.mark.integration, pytest.mark.deep]  # needs no server, but many deliveries

POINTS = 2
"""How many calls of each kind and story the short form strikes."""
OTHERS = an_attempt("z-1")
VALUES = {"a-1": [1, 2], "b-1": [3], "c-1": []}


class AddingDelivery:
    """A delivery of new batches, during which the table goes back to the version before it.

    :param target: where there is no table yet.
    """

    before: ClassVar[Mapping[str, Sequence[int]]] = {}
    attempts: ClassVar[Sequence[Attempt]] = [an_attempt(batch_id) for batch_id in VALUES]
    expected: ClassVar[Mapping[str, Sequence[int]]] = {"z-1": [9], "a-1": [1, 2], "b-1": [3]}

    def __init__(self, target: SinkTarget) -> None:
        self.target = target
        self.deliver([OTHERS, *(an_attempt(batch_id) for batch_id in self.before)], {"z-1": [9], **self.before})
        self.version = version_of(target)
        self.left = self.seen = target.visible

    def sink(self) -> Sink:
        return self.target.sink()

    def rows(self, values: Mapping[str, Sequence[Any]]) -> Any:
        return BatchRows(dict(values))

    def deliver(self, attempts: Sequence[Attempt], values: Mapping[str, Sequence[Any]] = VALUES) -> None:
        """Let a job deliver what the table owes."""
        sink = self.sink()
        left = owed(sink, attempts)
        sink.prepare(left, self.rows(values))
        sink.commit(left)
        sink.discard(left)

    def by_victim(self) -> None:
        self.deliver(self.attempts)

    def by_successor(self) -> None:
        """Take the table back."""
        self.seen = self.target.visible
        restore(self.target, self.version)
        self.left = self.target.visible


class ReplacingDelivery(AddingDelivery):
    """The same with batches that were rejected before."""

    before: ClassVar[Mapping[str, Sequence[int]]] = {"a-1": [-1], "b-1": [-2, -3], "c-1": [-4]}
    attempts: ClassVar[Sequence[Attempt]] = [
        under_next_lease(an_attempt(batch_id), rejected=True) for batch_id in VALUES
    ]


class MergingDelivery(AddingDelivery):
    """The same with rows that replace those with their keys."""

    before: ClassVar[Mapping[str, Sequence[int]]] = {}
    attempts: ClassVar[Sequence[Attempt]] = [an_attempt("a-1")]
    expected: ClassVar[Mapping[str, Sequence[int]]] = {"z-1": [9], "a-1": [1, 2]}

    def sink(self) -> Sink:
        return a_sink(self.target)

    def rows(self, values: Mapping[str, Sequence[Any]]) -> Any:
        return MergedRows({"z-1": [("x", 0), ("w", 9)], "a-1": [("x", 1), ("y", 2)]})


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("story", [AddingDelivery, ReplacingDelivery, MergingDelivery])
@pytest.mark.parametrize("kind", sorted(TABLES))
def test_restore_at_any_call_hides_or_doubles_no_batch(
    tmp_path: Path, kind: str, story: type[AddingDelivery], record_property: Callable[[str, object], None]
) -> None:
    number = len(calls_of(story(SinkTarget(TABLES[kind], tmp_path / "counted"))))
    points = [(strike, point) for strike in STRIKES for point in range(1, number + 1)]
    chosen = some_of(points, POINTS, "restore", kind, story.__name__)
    assert points
    for strike, point in (tried := at_depth(short=chosen, deep=points)):
        delivery = story(SinkTarget(TABLES[kind], tmp_path / f"{strike} {point}"))
        with reports_of(delivery.target) as reports:
            struck = strike_at(point, strike, delivery)
            delivery.deliver([under_next_lease(attempt) for attempt in delivery.attempts])
        assert delivery.target.visible == delivery.expected, struck
        if delivery.left != delivery.seen:
            assert reports and reports[0] == delivery.left, f"{struck}: what went back is not reported before"
    record_property("points", len(tried))
