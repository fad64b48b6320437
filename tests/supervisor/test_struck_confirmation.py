"""A supervisor fails at each call to the store of the turn that confirms the positions of an idle source.

While it stands still, or after it died, another supervisor confirms them too, a job delivers new records, or a person
resets a shard. Then it goes on. No position moves backwards, no reset is undone, and no record counts as read that is
not.
"""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.partition import format_instant
from tests.supervisor.record_simulation import RecordSimulation
from tests.support.depth import at_depth
from tests.support.freezing import Strike
from tests.support.striking import STRIKES, calls_of, counted_store, strike_at

pytestmark = pytest.mark.deep
HOURS = 7
"""After more than six hours, positions are confirmed."""
RIVALS = ("supervisor", "record", "job", "reset", "reset by a job")


class Confirmation:
    """An idle source whose positions are due.

    :param rival: who proceeds.
    """

    def __init__(self, rival: str) -> None:
        self.rival = rival
        self.source = source = RecordSimulation("S0", "S1")
        source.submit(idle_after=60, period=30)
        source.stream.put("S0")
        settle(source)
        source.clock.advance(HOURS * 3600)

    def by_victim(self) -> None:
        """Confirm."""
        store: Any = counted_store(self.source.backend)
        self.source.another_supervisor(self.source.claimant, store).turn(self.source.cluster)

    def by_successor(self) -> None:
        """Let the rival proceed."""
        source = self.source
        if "reset" in self.rival:
            source.reset("S0", 0)
        if self.rival in ("record", "job"):
            source.stream.put("S0")
            source.stream.put("S1")
        if self.rival == "supervisor" or "job" in self.rival:
            source.clock.advance(1)
            source.claimant = source.later_claimant()
            source.supervisor = source.another_supervisor(source.claimant)
            source.go_on(60)
        source.check()


def settle(source: RecordSimulation, struck: str = "") -> None:
    """Let the source become idle, with everything delivered."""
    for _ in range(60):
        if source.is_settled:
            return
        source.go_on(20)
        source.check(struck)
    raise AssertionError(f"the source does not settle: {struck}")


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("strike", STRIKES)
def test_struck_confirmation_misstates_no_position(strike: Strike, rival: str) -> None:
    number = len(calls_of(Confirmation(rival)))
    assert number > 10
    steps = at_depth(short=4 if strike is Strike.FREEZE else 15, deep=1)
    for point in range(1 + STRIKES.index(strike) % steps, number + 1, steps):
        story = Confirmation(rival)
        struck = f"{strike_at(point, strike, story)}, {rival}"
        check(story, struck)


def check(story: Confirmation, struck: str) -> None:
    source = story.source
    source.check(struck)
    settle(source, struck)
    epoch = 1 if "reset" in story.rival else 0
    assert source.delivered["S0", epoch, 0] == 1, struck
    source.clock.advance(HOURS * 3600)
    source.go_on(60)
    source.check(struck)
    assert all("delivered_until" in partition.progress for partition in source.view.partitions()), struck
    assert source.running == [], struck


@pytest.mark.parametrize("strike", STRIKES)
def test_struck_confirmation_is_repeated_by_the_next_turn(strike: Strike) -> None:
    number = len(calls_of(Confirmation("supervisor")))
    for point in range(1, number + 1, at_depth(short=5, deep=1)):
        story = Confirmation("supervisor")
        due_at = format_instant(story.source.clock.now())
        struck = strike_at(point, strike, story)
        confirmed = [str(partition.progress["delivered_until"]) for partition in story.source.view.partitions()]
        assert len(confirmed) == 2 and min(confirmed) >= due_at, struck
