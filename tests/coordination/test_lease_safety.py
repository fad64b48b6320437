"""Whatever happens to clocks and processes, two owners never both believe, and no write of an old owner lands."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.stores.in_memory import InMemoryStore
from tests.support.clock import ManualClock

OWNERS, KEYS, MARGIN_SECONDS = range(3), [f"p{n}" for n in range(3)], 5
owner_index = st.sampled_from(list(OWNERS))


class LeaseSafety(RuleBasedStateMachine):
    """Three owners whose wall clocks differ by up to the margin work on three partitions.

    Each partition's progress is a counter that only its present owner may raise. The model is the number of raises
    that were acknowledged: a lost or a doubled write would show as a difference.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = InMemoryStore()
        self.clocks = [ManualClock() for _ in OWNERS]
        self.owners = [
            SourceCoordinator(
                self.store,
                "clicks",
                f"owner-{n}",
                ownership_timeout=timedelta(seconds=60),
                safety_margin=timedelta(seconds=MARGIN_SECONDS),
                clock=self.clocks[n],
            )
            for n in OWNERS
        ]
        for owner in self.owners:
            owner.initialize()
        self.owners[0].create_partitions({key: {"count": 0} for key in KEYS})
        self.acknowledged = dict.fromkeys(KEYS, 0)
        self.skew = [0.0 for _ in OWNERS]

    @rule(seconds=st.sampled_from([1, 10, 30, 55, 60, 66, 200]))
    def time_passes(self, seconds: int) -> None:
        for clock in self.clocks:
            clock.advance(seconds)

    @rule(n=owner_index, seconds=st.floats(0, MARGIN_SECONDS))
    def a_wall_clock_is_set_within_the_margin(self, n: int, seconds: float) -> None:
        self.clocks[n].set_wall_clock_back(seconds - self.skew[n])
        self.skew[n] = seconds

    @rule(n=owner_index, limit=st.integers(1, 3))
    def acquire(self, n: int, limit: int) -> None:
        self.owners[n].acquire(limit)

    @rule(n=owner_index)
    def renew(self, n: int) -> None:
        self.owners[n].renew_due()

    @rule(n=owner_index, key=st.sampled_from(KEYS))
    def work(self, n: int, key: str) -> None:
        held = self.owners[n].held.get(key)
        if held is None:
            return
        try:
            self.owners[n].save_progress(key, {"count": held.progress["count"] + 1})
            self.acknowledged[key] += 1
        except LOST:
            pass

    @rule(n=owner_index)
    def give_up(self, n: int) -> None:
        self.owners[n].give_up_all()

    @rule(n=owner_index, dead=owner_index)
    def airflow_gives_up_for(self, n: int, dead: int) -> None:
        # Airflow does so when the owner is dead; here the owner may live, and must notice before its next write.
        self.owners[n].give_up_owner(f"owner-{dead}")
        self.given_up_by_force = True

    given_up_by_force = False

    @invariant()
    def no_write_is_lost_or_doubled(self) -> None:
        for partition in self.owners[0].partitions():
            assert partition.progress["count"] == self.acknowledged[partition.partition_key]

    @invariant()
    def an_owner_is_named_exactly_while_assigned(self) -> None:
        for partition in self.owners[0].partitions():
            assert (partition.owner is not None) == (partition.status is PartitionStatus.ASSIGNED)

    @precondition(lambda self: not self.given_up_by_force)
    @invariant()
    def two_owners_never_both_believe(self) -> None:
        for key in KEYS:
            assert sum(owner.owns(key) for owner in self.owners) <= 1


LeaseSafety.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLeaseSafety = LeaseSafety.TestCase
