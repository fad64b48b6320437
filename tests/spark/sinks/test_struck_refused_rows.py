"""A job whose table refuses rows fails at each of its calls; another job continues, and its table refuses other rows.

Each batch is in the table once, from one of the two jobs. The dead letters have the rows that this job's delivery left
out, and none of the other's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.spark.sinks import owed
from airflow_provider_coordination.spark.sinks.sql import database
from tests.support.depth import each_or_every
from tests.support.freezing import Strike
from tests.support.refusing_sinks import KINDS, RefusingTarget, a_refusing_target, deliver
from tests.support.sinks import SINKS, BatchRows, OnServer, an_attempt, under_next_lease
from tests.support.striking import STRIKES, calls_of, strike_at

pytestmark = [pytest.mark.integration, pytest.mark.deep]

FIRST: dict[str, Any] = {"a-1": [None, 7], "b-1": [8]}
"""What was delivered before, and rejected."""
OF_VICTIM: dict[str, Any] = {"a-1": [1, None, 2], "b-1": [3]}
OF_NEXT: dict[str, Any] = {"a-1": [-1, -2, -3], "b-1": [None, -4]}


class Delivery:
    """One delivery by a failing job, which another job takes over.

    :param target: the table.
    :param is_rejected: whether the batches were in before, and were rejected.
    """

    def __init__(self, target: RefusingTarget, *, is_rejected: bool) -> None:
        self.target = target
        self.attempts = [an_attempt(batch_id) for batch_id in OF_VICTIM]
        self.is_taken_over = False
        self.has_failed = False
        if is_rejected:
            deliver(target.sink(), self.attempts, FIRST)
            self.attempts = [under_next_lease(attempt, rejected=True) for attempt in self.attempts]

    def by_victim(self) -> None:
        """Deliver as a job does: it checks its ownership in the store before it commits."""
        sink = self.target.sink()
        self.has_failed = True
        sink.prepare(owed(sink, self.attempts), BatchRows(OF_VICTIM))
        if not self.is_taken_over:
            sink.commit(self.attempts)
        self.has_failed = False
        sink.discard(self.attempts)

    def by_successor(self) -> None:
        """Deliver under the next leases."""
        self.is_taken_over = True
        sink, again = self.target.sink(), [under_next_lease(attempt) for attempt in self.attempts]
        for attempt in again:
            sink.sweep({attempt.folder: attempt.fencing_token})
        deliver(sink, again, OF_NEXT)


def problem_of(target: RefusingTarget) -> str:
    """Return what readers should not see; empty if each batch is from one job, with this job's refused rows."""
    visible, letters = target.visible, target.letters
    for batch_id in OF_VICTIM:
        seen = (visible.get(batch_id, []), letters.get(batch_id, 0))
        expected = [
            (sorted(n for n in of[batch_id] if n is not None), of[batch_id].count(None)) for of in (OF_VICTIM, OF_NEXT)
        ]
        if seen not in expected:
            return f"batch {batch_id} has {seen}, not one of {expected}"
    return ""


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAIT_SECONDS", 20)
    monkeypatch.setattr(database, "ABANDONED_SECONDS", 1)
    monkeypatch.setattr(database, "LOCK_TIMEOUT_SECONDS", 1)


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("is_rejected", [False, True], ids=["first delivery", "after a rejection"])
@pytest.mark.parametrize("kind", KINDS)
def test_failure_at_any_call_keeps_each_row_once(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, is_rejected: bool
) -> None:
    made = SINKS[kind]
    url = request.getfixturevalue(made.fixture) if isinstance(made, OnServer) else ""

    def story(name: str) -> Delivery:
        return Delivery(a_refusing_target(kind, tmp_path / name, url), is_rejected=is_rejected)

    # The connections of a database commit side by side, so the number of calls varies.
    counted = story("counted")
    calls = min(calls_of(counted), calls_of(story("counted_again")), key=len)
    assert problem_of(counted.target) == "" and any("_refused/" in call for call in calls)
    strikes = [each for each in STRIKES if each is not Strike.TWICE or not url]
    for number, strike in enumerate(strikes):
        for point in each_or_every(60, len(calls), kind, is_rejected, strike):
            struck_story = story(f"at{number}_{point}")
            struck = strike_at(point, strike, struck_story)
            assert problem_of(struck_story.target) == "", struck
            if strike is Strike.FREEZE and not struck_story.has_failed:  # a database ends its session
                assert struck_story.target.kept == [], struck
