"""Cleanup removes leases, and never causes a second read of a shard."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.lease_changes import expired_finished, removable, vanished
from airflow_provider_coordination.sources.kinesis.leases import ShardLease, leases_to_create
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON, at_timestamp
from airflow_provider_coordination.sources.kinesis.shards import MAX_HASH_KEY, Shard
from tests.support.batches import NOON
from tests.support.depth import examples
from tests.support.shard_graphs import GRAPH_A, shard
from tests.support.shard_leases import a_lease

RETENTION = timedelta(hours=24)
BY_NAME = {each.shard_id: each for each in GRAPH_A}


def removed(leases: list[ShardLease], shards: list[Shard]) -> str:
    by_shard = {lease.key.shard_id: lease for lease in leases}
    found = removable(by_shard, shards, completed_by=NOON)
    return " ".join(lease.key.shard_id for lease in found)


def done(*names: int) -> list[ShardLease]:
    return [a_lease(BY_NAME[str(name)], completed_at=NOON) for name in names]


def begun(*names: int) -> list[ShardLease]:
    return [a_lease(BY_NAME[str(name)], checkpoint="12345") for name in names]


def new(*names: int, checkpoint: str = TRIM_HORIZON) -> list[ShardLease]:
    return [a_lease(BY_NAME[str(name)], checkpoint=checkpoint) for name in names]


def test_finished_shards_are_removed_ancestors_first() -> None:
    assert removed([*done(0, 1, 2, 3, 6, 7), *begun(8)], GRAPH_A) == "0 1 2 3 6 7"


def test_shard_stays_until_its_children_are_leased_and_begun() -> None:
    assert removed([*done(5), *begun(9), *new(10)], GRAPH_A) == ""
    assert removed([*done(5), *begun(9), *new(10, checkpoint=at_timestamp(NOON))], GRAPH_A) == ""
    assert removed([*done(5), *begun(9)], GRAPH_A) == ""
    assert removed([*done(5), *begun(9, 10)], GRAPH_A) == "5"


def test_shard_stays_while_a_parent_has_a_lease() -> None:
    assert removed([*done(0), *new(1), *done(6), *begun(8)], GRAPH_A) == "0"
    assert removed([*new(0, 1), *done(6), *begun(8)], GRAPH_A) == ""


def test_shard_without_known_children_stays() -> None:
    # The Kinesis Client Library deletes it: all of no children have started.
    assert removed(done(4), GRAPH_A) == ""


def test_recently_finished_shard_stays() -> None:
    lease = a_lease(BY_NAME["5"], completed_at=NOON + timedelta(seconds=1))

    assert removed([lease, *begun(9, 10)], GRAPH_A) == ""


def test_unfinished_lease_is_never_removed() -> None:
    assert removed([*begun(5), *begun(9, 10)], GRAPH_A) == ""


def test_finished_leases_beyond_the_retention_are_removed() -> None:
    gone, kept = a_lease(shard(99, 1, 2), completed_at=NOON), a_lease(shard(98, 1, 2), completed_at=NOON)
    leases = {"99": gone, "98": kept, "4": begun(4)[0]}

    def found(hours: float) -> list[ShardLease]:
        return expired_finished(
            leases, [*GRAPH_A, shard(98, 1, 2)], now=NOON + timedelta(hours=hours), retention=RETENTION
        )

    assert found(23.9) == []
    assert found(24.1) == [gone]


def test_expired_parent_stays_while_a_merge_child_waits() -> None:
    listed = [each for each in GRAPH_A if each.shard_id != "0"]
    leases = {"0": done(0)[0], "1": begun(1)[0]}

    assert expired_finished(leases, listed, now=NOON + 2 * RETENTION, retention=RETENTION) == []


@pytest.mark.parametrize(
    ("delivered_until", "checkpoint", "created_before", "is_suspect"),
    [
        (None, TRIM_HORIZON, timedelta(hours=25), True),
        (None, TRIM_HORIZON, timedelta(hours=23), False),  # the stream itself is younger than what it keeps
        (timedelta(hours=23), "7", timedelta(hours=99), False),  # it was read then, and cannot have expired since
        (timedelta(hours=24), "7", timedelta(hours=99), True),
        # Nothing of it was read: the instant is only where it began.
        (timedelta(hours=23), at_timestamp(NOON), timedelta(hours=99), True),
    ],
)
def test_only_shards_unread_within_retention_may_have_expired(
    delivered_until: timedelta | None, checkpoint: str, created_before: timedelta, is_suspect: bool
) -> None:
    now = NOON + timedelta(hours=25)
    lease = a_lease(shard(99, 1, None), checkpoint=checkpoint, epoch=int((now - created_before).timestamp()))
    assert lease.progress is not None
    seen = replace(lease.progress, delivered_until=delivered_until and now - delivered_until)
    lease = replace(lease, progress=seen)
    found = vanished({"99": lease}, GRAPH_A, now=now, retention=RETENTION)

    assert found == ([lease] if is_suspect else [])
    assert vanished({"99": lease}, [shard(99, 1, None)], now=now, retention=RETENTION) == []


class StreamMachine(RuleBasedStateMachine):
    """Streams that are resharded, read, cleaned up and trimmed in any order.

    A shard is gone some time after it was closed, in the order of closing, and never before it is worked off: what is
    lost unread has other tests.
    """

    @initialize(shards=st.integers(1, 3), position=st.sampled_from([TRIM_HORIZON, at_timestamp(NOON)]))
    def begin(self, shards: int, position: str) -> None:
        self.position = position
        self.shards: dict[str, Shard] = {}
        self.listed: set[str] = set()
        self.closed: list[str] = []
        self.statuses: dict[str, ShardLease] = {}
        self.created: list[str] = []
        width = (MAX_HASH_KEY + 1) // shards
        for number in range(shards):
            last = MAX_HASH_KEY if number == shards - 1 else (number + 1) * width - 1
            self._add((), number * width, last)

    def _add(self, parents: tuple[str, ...], first: int, last: int) -> None:
        name = str(len(self.shards))
        self.shards[name] = shard(name, len(self.shards) + 1, None, *parents, keys=(first, last))
        self.listed.add(name)

    def _close(self, name: str) -> Shard:
        old = self.shards[name]
        ends = int(old.starting_sequence_number) + 1
        self.shards[name] = closed = shard(
            name,
            int(old.starting_sequence_number),
            ends,
            *old.parent_shard_ids,
            keys=(int(old.starting_hash_key), int(old.ending_hash_key)),
        )
        self.closed.append(name)
        return closed

    def _open(self) -> list[Shard]:
        return sorted(
            (each for each in self.shards.values() if each.is_open), key=lambda each: int(each.starting_hash_key)
        )

    @precondition(lambda self: len(self.shards) < 20)
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        parent = self._close(data.draw(st.sampled_from(self._open())).shard_id)
        first, last = int(parent.starting_hash_key), int(parent.ending_hash_key)
        middle = (first + last) // 2
        self._add((parent.shard_id,), first, middle)
        self._add((parent.shard_id,), middle + 1, last)

    @precondition(lambda self: len(self.shards) < 20 and len(self._open()) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        ranges = self._open()
        left = data.draw(st.integers(0, len(ranges) - 2))
        low, high = self._close(ranges[left].shard_id), self._close(ranges[left + 1].shard_id)
        self._add((low.shard_id, high.shard_id), int(low.starting_hash_key), int(high.ending_hash_key))

    @rule()
    def sync(self) -> None:
        for due in leases_to_create(self._listing(), self._existing(), self.position):
            self.created.append(due.shard.shard_id)
            self.statuses[due.shard.shard_id] = a_lease(due.shard, checkpoint=due.checkpoint)

    @precondition(lambda self: any(not lease.is_finished for lease in self.statuses.values()))
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """Deliver a record of a shard, or its end."""
        unfinished = sorted(name for name, lease in self.statuses.items() if not lease.is_finished)
        name = data.draw(st.sampled_from(unfinished))
        parents = self.shards[name].parent_shard_ids
        assert all(parent not in self.statuses or self.statuses[parent].is_finished for parent in parents)
        if not self.shards[name].is_open and data.draw(st.booleans()):
            self.statuses[name] = a_lease(self.shards[name], checkpoint="7", completed_at=NOON)
        else:
            self.statuses[name] = a_lease(self.shards[name], checkpoint="7")

    @rule()
    def clean_up(self) -> None:
        for lease in removable(self.statuses, self._listing(), completed_by=NOON):
            del self.statuses[lease.key.shard_id]
        now = NOON + 2 * RETENTION
        for lease in expired_finished(self.statuses, self._listing(), now=now, retention=RETENTION):
            del self.statuses[lease.key.shard_id]

    @precondition(lambda self: any(name in self.listed for name in self.closed))
    @rule()
    def trim(self) -> None:
        oldest = next(name for name in self.closed if name in self.listed)
        worked_off = oldest in self.created and (oldest not in self.statuses or self.statuses[oldest].is_finished)
        if worked_off:
            self.listed.discard(oldest)

    @invariant()
    def no_shard_is_leased_twice(self) -> None:
        assert len(set(getattr(self, "created", ()))) == len(getattr(self, "created", ()))

    def teardown(self) -> None:
        """Whatever happened: work goes on until there is none, and then every shard was read."""
        if not hasattr(self, "shards"):
            return
        for _ in range(3 * len(self.shards) + 3):
            self.sync()
            self.no_shard_is_leased_twice()
            for name, lease in self.statuses.items():
                if not lease.is_finished and not self.shards[name].is_open:
                    self.statuses[name] = a_lease(self.shards[name], checkpoint="7", completed_at=NOON)
                elif not lease.is_finished:
                    self.statuses[name] = a_lease(self.shards[name], checkpoint="7")
            self.clean_up()
        assert set(self.created) == set(self.shards)
        assert {name for name, lease in self.statuses.items() if not lease.is_finished} == {
            each.shard_id for each in self._open()
        }

    def _listing(self) -> list[Shard]:
        return [self.shards[name] for name in sorted(self.listed, key=int)]

    def _existing(self) -> dict[str, PartitionStatus]:
        return {name: lease.partition.status for name, lease in self.statuses.items()}


class TestHistories(StreamMachine.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=examples(12), stateful_step_count=30)


@pytest.mark.integration  # it takes its time
class TestManyHistories(StreamMachine.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=examples(400), stateful_step_count=50)


@given(st.sets(st.sampled_from(sorted(BY_NAME))))
@settings(max_examples=examples(25))
def test_removed_leases_are_never_created_again(unfinished: set[str]) -> None:
    """Whichever shards of the graph are worked off: removing what can be leaves nothing more to create than before."""
    leases: dict[str, ShardLease] = {}
    while due := leases_to_create(GRAPH_A, {name: lease.partition.status for name, lease in leases.items()}):
        for each in due:
            is_done = each.shard.shard_id not in unfinished and not each.shard.is_open
            leases[each.shard.shard_id] = a_lease(each.shard, checkpoint="7", completed_at=NOON if is_done else None)
    removed = list(removable(leases, GRAPH_A, completed_by=NOON))
    assert removed or unfinished
    for gone in removed:
        del leases[gone.key.shard_id]
        assert not leases_to_create(GRAPH_A, {name: lease.partition.status for name, lease in leases.items()})
