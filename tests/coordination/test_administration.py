"""The actions of a user on partitions, whichever owner holds them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest

from airflow_provider_coordination.coordination.administration import MAX_TRIES, Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    PartitionNotFoundError,
    PartitionNotOwnedError,
    PartitionStatusError,
    PartitionUpdateError,
    ProgressError,
)
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    Partition,
    PartitionStatus,
    parse_source_identifier,
    source_identifier,
)
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.texts import MAX_TEXT_CHARACTERS
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from airflow_provider_coordination.stores.sql import SqlStore
from tests.support.clock import ManualClock

FAMILY = "test|clicks|PARTITION"


class AdministeredSource:
    """A store, the owner `a` of its partitions, and two administrations of it."""

    def __init__(self, store: CoordinationStore) -> None:
        store.initialize()
        self.store = store
        self.clock = ManualClock()
        self.a = self.owner("a")
        self.person = Administration(store, FAMILY, self.clock)
        self.ann = Administration(store, FAMILY, self.clock, by="ann", reason="it is too hot")

    def owner(self, name: str) -> SourceCoordinator:
        coordinator = SourceCoordinator(self.store, "clicks", name, prefix="test", clock=self.clock)
        coordinator.initialize()
        return coordinator

    def waiting(self) -> None:
        self.a.create_partitions({"p": {"n": 1}})

    def leased(self) -> None:
        self.waiting()
        self.a.leases.acquire(1)

    def failed(self) -> None:
        self.leased()
        self.a.leases.fail("p", "no luck")

    def resting(self) -> None:
        self.leased()
        self.a.leases.close("p", timedelta(hours=1))

    def parked(self) -> None:
        self.leased()
        [partition] = self.a.leases.held.values()
        self.store.transact(update=[partition.failed("no luck").resting(PARKED_UNTIL)])

    def completed(self) -> None:
        self.leased()
        self.a.leases.complete("p", {"n": 2})

    @property
    def p(self) -> Partition:
        return self.person.get("p")


@pytest.fixture(params=["in_memory", "sqlite"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AdministeredSource]:
    sqlite = request.param == "sqlite"
    store = SqlStore(f"sqlite:///{tmp_path}/c.db", table="coordination_partition") if sqlite else InMemoryStore()
    yield AdministeredSource(store)
    store.close()


class Operation(Protocol):
    def __call__(
        self, person: Administration, seen: Partition | None = None, version: int | None = None
    ) -> Partition: ...


OPERATIONS: dict[str, Operation] = {
    "release": lambda person, expected=None, version=None: person.release("p", expected=expected, version=version),
    "reopen": lambda person, expected=None, version=None: person.reopen("p", expected=expected, version=version),
    "park": lambda person, expected=None, version=None: person.park("p", expected=expected, version=version),
    "reset": lambda person, expected=None, version=None: person.reset(
        "p", {"n": 0}, expected=expected, version=version
    ),
    "delete": lambda person, expected=None, version=None: person.delete("p", expected=expected, version=version),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_missing_partition_is_named(source: AdministeredSource, operation: Operation) -> None:
    with pytest.raises(PartitionNotFoundError, match=r"partition 'p' of 'test\|clicks\|PARTITION' does not exist"):
        operation(source.person)


def test_released_partition_keeps_progress_and_failures(source: AdministeredSource) -> None:
    source.failed()
    source.a.leases.acquire(1)
    source.clock.advance(10)
    written = source.person.release("p")
    assert written == source.p
    assert (written.status, written.owner, written.progress) == (PartitionStatus.UNASSIGNED, None, {"n": 1})
    assert (written.attempts, written.priority) == (1, source.clock.now())


def test_reset_derives_progress_from_the_version_it_overwrites(source: AdministeredSource) -> None:
    source.leased()
    seen = source.person.get("p")
    source.a.leases.save_progress("p", {"n": 41})

    written = source.person.reset("p", lambda partition: {"n": partition.progress["n"] + 1}, expected=seen)

    assert written.progress == {"n": 42}


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_writes_of_the_previous_owner_are_refused(source: AdministeredSource, operation: str) -> None:
    source.leased()
    OPERATIONS[operation](source.person)
    with pytest.raises((PartitionNotOwnedError, PartitionNotFoundError)):
        source.a.leases.save_progress("p", {"n": 7})
    assert not source.a.leases.held


def test_expired_lease_can_be_released(source: AdministeredSource) -> None:
    source.leased()
    source.clock.advance(1000)
    assert source.person.release("p").owner is None


@pytest.mark.parametrize("current", ["waiting", "resting", "completed"])
def test_partition_without_an_owner_is_not_released(source: AdministeredSource, current: str) -> None:
    getattr(source, current)()
    before = source.p
    with pytest.raises(PartitionStatusError, match=r"partition 'p' is \w+: it has no owner"):
        source.person.release("p")
    assert source.p == before


@pytest.mark.parametrize("current", ["resting", "parked"])
def test_reopened_partition_is_available_without_failures(source: AdministeredSource, current: str) -> None:
    getattr(source, current)()
    written = source.person.reopen("p")
    assert (written.status, written.attempts, written.last_error) == (PartitionStatus.UNASSIGNED, 0, None)
    assert written.progress == {"n": 1}
    assert [p.partition_key for p in source.owner("b").leases.acquire(1)] == ["p"]


def test_reopening_after_a_failure_clears_it_and_keeps_the_place(source: AdministeredSource) -> None:
    source.failed()
    before = source.p
    source.clock.advance(10)
    written = source.person.reopen("p")
    assert (before.attempts, written.attempts, written.last_error) == (1, 0, None)
    assert written.priority == before.priority


def test_reopening_a_deferred_partition_makes_it_available(source: AdministeredSource) -> None:
    source.leased()
    source.a.leases.give_up("p", after=timedelta(hours=1))
    assert source.person.reopen("p").priority == source.clock.now()


@pytest.mark.parametrize(
    ("current", "message"),
    [
        ("completed", "partition 'p' is COMPLETED: all its data is delivered; use reset"),
        ("leased", "partition 'p' is ASSIGNED: a works on it; use release"),
        ("waiting", "partition 'p' is UNASSIGNED: it already waits for an owner"),
    ],
)
def test_partition_that_is_not_closed_is_not_reopened(source: AdministeredSource, current: str, message: str) -> None:
    getattr(source, current)()
    with pytest.raises(PartitionStatusError, match=message):
        source.person.reopen("p")


@pytest.mark.parametrize("current", ["waiting", "leased", "failed", "resting", "parked", "completed"])
def test_partition_is_reset_in_every_status(source: AdministeredSource, current: str) -> None:
    getattr(source, current)()
    version = source.p.version
    source.clock.advance(10)
    written = source.person.reset("p", {"n": 0})
    assert written == source.p
    assert written == Partition(
        source_identifier=FAMILY,
        partition_key="p",
        status=PartitionStatus.UNASSIGNED,
        priority=source.clock.now(),
        progress={"n": 0},
        version=version + 1,
    )


def test_reset_overwrites_unreadable_progress() -> None:
    source = AdministeredSource(InMemoryStore())
    source.store.create(
        [
            Partition(
                source_identifier=FAMILY,
                partition_key="p",
                status=PartitionStatus.UNASSIGNED,
                priority=source.clock.now(),
                unreadable_progress="[1, 2",
            )
        ]
    )
    assert source.p.unreadable_progress == "[1, 2"
    written = source.person.reset("p", {"n": 0})
    assert (written.progress, written.unreadable_progress) == ({"n": 0}, None)


def test_progress_that_is_not_json_is_refused(source: AdministeredSource) -> None:
    source.waiting()
    with pytest.raises(ProgressError, match="its progress is not JSON"):
        source.person.reset("p", {"n": {1}})


@pytest.mark.parametrize("current", ["waiting", "leased", "resting", "completed"])
def test_partition_is_deleted_in_every_status(source: AdministeredSource, current: str) -> None:
    getattr(source, current)()
    before = source.p
    assert source.person.delete("p") == before
    assert source.store.get(FAMILY, "p") is None


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_renewals_and_progress_since_reading_are_accepted(source: AdministeredSource, operation: str) -> None:
    source.leased()
    seen = source.p
    source.a.leases.save_progress("p", {"n": 5})
    source.a.leases.renew("p")
    written = OPERATIONS[operation](source.person, seen)
    assert written.progress == ({"n": 0} if operation == "reset" else {"n": 5})


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_partition_of_a_new_owner_is_left_alone(source: AdministeredSource, operation: str) -> None:
    source.leased()
    seen = source.p
    source.a.leases.give_up("p")
    source.owner("b").leases.acquire(1)
    before = source.p
    with pytest.raises(
        PartitionUpdateError, match="has changed in the meantime: it was ASSIGNED to a and is now ASSIGNED to b"
    ):
        OPERATIONS[operation](source.person, seen)
    assert source.p == before


def test_partition_deleted_since_reading_is_reported(source: AdministeredSource) -> None:
    source.leased()
    seen = source.p
    source.person.delete("p")
    with pytest.raises(PartitionNotFoundError, match="'p'"):
        source.person.release("p", expected=seen)


class ResponseLosingStore(InMemoryStore):
    """Writes what it is given, loses the response, and finds its own write when it tries again."""

    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        super().transact(update=update, create=create, new=new, unchanged=unchanged)
        return super().transact(update=update, create=create, new=new, unchanged=unchanged)

    def delete(self, partition: Partition) -> None:
        super().delete(partition)
        super().delete(partition)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_write_with_a_lost_response_is_recognized(operation: Operation) -> None:
    store = ResponseLosingStore()
    status = PartitionStatus.CLOSED if operation is OPERATIONS["reopen"] else PartitionStatus.ASSIGNED
    clock = ManualClock()
    store.create([Partition(source_identifier=FAMILY, partition_key="p", status=status, priority=clock.now())])
    assert operation(Administration(store, FAMILY, clock)).partition_key == "p"
    stored = store.get(FAMILY, "p")
    becomes = PartitionStatus.CLOSED if operation is OPERATIONS["park"] else PartitionStatus.UNASSIGNED
    assert stored is None or (stored.status, stored.version) == (becomes, 1)


class RenewingStore(InMemoryStore):
    """The owner is faster, this number of times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def renew(self) -> None:
        stored = self.get(FAMILY, "p")
        if self.times and stored is not None:
            self.times -= 1
            super().transact(update=[stored])

    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        self.renew()
        return super().transact(update=update, create=create, new=new, unchanged=unchanged)

    def delete(self, partition: Partition) -> None:
        self.renew()
        super().delete(partition)


def renewed_before_each_write(times: int) -> Administration:
    return person_at(RenewingStore(times))


def person_at(store: InMemoryStore) -> Administration:
    clock = ManualClock()
    lease = Partition(
        source_identifier=FAMILY, partition_key="p", status=PartitionStatus.ASSIGNED, priority=clock.now(), owner="a"
    )
    store.create([lease])
    return Administration(store, FAMILY, clock)


@pytest.mark.parametrize("operation", ["release", "reset", "delete"])
def test_action_is_retried_after_a_faster_owner(operation: str) -> None:
    assert OPERATIONS[operation](renewed_before_each_write(MAX_TRIES - 1)).partition_key == "p"


@pytest.mark.parametrize("operation", ["release", "reset", "delete"])
def test_action_is_not_retried_forever(operation: str) -> None:
    with pytest.raises(
        PartitionUpdateError, match=f"partition 'p' changed {MAX_TRIES} times during the write; try again"
    ):
        OPERATIONS[operation](renewed_before_each_write(MAX_TRIES))


def test_action_on_a_partition_is_one_log_line(source: AdministeredSource, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    source.leased()
    caplog.clear()
    source.person.release("p")
    source.person.delete("p")
    assert caplog.messages == [
        "partition released by hand: source=clicks partition=p previous_status=ASSIGNED previous_owner=a "
        "by=None reason=''",
        "partition deleted by hand: source=clicks partition=p previous_status=UNASSIGNED previous_owner=None "
        "by=None reason=''",
    ]


# Parking


@pytest.mark.parametrize("current", ["waiting", "leased", "failed", "resting"])
def test_parked_partition_keeps_progress_and_failures(source: AdministeredSource, current: str) -> None:
    getattr(source, current)()
    before = source.p
    written = source.ann.park("p")
    assert written == source.p
    assert (written.status, written.is_parked, written.owner) == (PartitionStatus.CLOSED, True, None)
    assert (written.progress, written.attempts) == (before.progress, before.attempts)
    source.clock.advance(10**8)
    assert source.owner("b").leases.acquire(1) == [] and source.a.reopen_due() == []


def test_parked_partition_records_user_reason_and_previous_error(source: AdministeredSource) -> None:
    source.waiting()
    assert source.ann.park("p").last_error == "parked by ann: it is too hot"
    source.person.reopen("p")
    assert source.person.park("p").last_error == "parked by hand"
    source.person.reopen("p")
    source.a.leases.acquire(1)
    source.a.leases.fail("p", "no luck")
    assert source.ann.park("p").last_error == "parked by ann: it is too hot; before that: no luck"


def test_manually_parked_partition_is_reopened(source: AdministeredSource) -> None:
    source.failed()
    source.ann.park("p")
    written = source.person.reopen("p")
    assert (written.status, written.attempts, written.last_error) == (PartitionStatus.UNASSIGNED, 0, None)
    assert [p.partition_key for p in source.owner("b").leases.acquire(1)] == ["p"]


@pytest.mark.parametrize(
    ("current", "message"),
    [
        ("completed", "partition 'p' is COMPLETED: all its data is delivered, so there is nothing to park"),
        ("parked", "partition 'p' is already parked"),
    ],
)
def test_completed_or_parked_partition_is_not_parked(source: AdministeredSource, current: str, message: str) -> None:
    getattr(source, current)()
    before = source.p
    with pytest.raises(PartitionStatusError, match=message):
        source.person.park("p")
    assert source.p == before


# The version that the person saw


def standing_for(source: AdministeredSource, operation: str) -> None:
    source.resting() if operation == "reopen" else source.leased()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_action_changes_the_given_version(source: AdministeredSource, operation: str) -> None:
    standing_for(source, operation)
    written = OPERATIONS[operation](source.person, version=source.p.version)
    assert written.partition_key == "p"


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_any_later_write_makes_the_version_stale(source: AdministeredSource, operation: str) -> None:
    source.leased()
    seen = source.p
    source.a.leases.renew("p")
    before = source.p
    with pytest.raises(
        PartitionUpdateError,
        match=rf"partition 'p' has changed since it was read: version {seen.version} was read, and it is now "
        rf"ASSIGNED to a, version {before.version}; check it again",
    ):
        OPERATIONS[operation](source.person, version=seen.version)
    assert source.p == before


def test_stale_version_error_reports_the_current_status(source: AdministeredSource) -> None:
    source.waiting()
    seen = source.p
    source.person.park("p")
    for operation in OPERATIONS.values():
        with pytest.raises(PartitionUpdateError, match=r"it is now CLOSED \(parked\), version"):
            operation(source.person, version=seen.version)
    source.person.reset("p", {})
    with pytest.raises(PartitionUpdateError, match=r"it is now UNASSIGNED, version"):
        source.person.release("p", version=seen.version)


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_concurrent_write_makes_the_version_stale(operation: str) -> None:
    person = renewed_before_each_write(1)
    with pytest.raises(PartitionUpdateError, match=r"version 0 was read, and it is now ASSIGNED to a, version 1"):
        OPERATIONS[operation](person, version=0)
    assert person.get("p").version == 1


class StealingStore(RenewingStore):
    """Another owner is faster, this number of times."""

    def renew(self) -> None:
        stored = self.get(FAMILY, "p")
        if self.times and stored is not None:
            self.times -= 1
            InMemoryStore.transact(self, update=[stored.acquired("b", stored.priority)])


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_version_taken_by_another_is_reported(operation: str) -> None:
    person = person_at(StealingStore(1))
    with pytest.raises(PartitionUpdateError, match=r"version 0 was read, and it is now ASSIGNED to b, version 1"):
        OPERATIONS[operation](person, version=0)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_versioned_write_with_a_lost_response_is_recognized(operation: Operation) -> None:
    store = ResponseLosingStore()
    status = PartitionStatus.CLOSED if operation is OPERATIONS["reopen"] else PartitionStatus.ASSIGNED
    clock = ManualClock()
    store.create([Partition(source_identifier=FAMILY, partition_key="p", status=status, priority=clock.now())])
    assert operation(Administration(store, FAMILY, clock), version=0).partition_key == "p"


# Who and why


@pytest.mark.parametrize("operation", OPERATIONS)
def test_user_and_reason_are_logged(
    source: AdministeredSource, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    standing_for(source, operation)
    with caplog.at_level(logging.INFO):
        OPERATIONS[operation](source.ann)
    assert caplog.messages[-1].endswith("by=ann reason='it is too hot'")


class RecordingStore(InMemoryStore):
    """Records the changes that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[str, str | None]] = []

    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        self.changes += [(p.change.reason, p.change.by) for p in update if p.change is not None]
        return super().transact(update=update, create=create, new=new, unchanged=unchanged)

    def delete(self, partition: Partition) -> None:
        if partition.change is not None:
            self.changes.append((partition.change.reason, partition.change.by))
        super().delete(partition)


@pytest.mark.parametrize(
    ("operation", "done"),
    [("release", "released"), ("reopen", "reopened"), ("park", "parked"), ("reset", "reset"), ("delete", "deleted")],
)
def test_history_records_user_and_reason(operation: str, done: str) -> None:
    store = RecordingStore()
    source = AdministeredSource(store)
    standing_for(source, operation)
    store.changes.clear()
    OPERATIONS[operation](source.ann)
    assert store.changes == [(f"{done} by hand: it is too hot", "ann")]


def test_any_text_of_a_user_can_be_stored(source: AdministeredSource) -> None:
    source.waiting()
    parked = Administration(source.store, FAMILY, source.clock, by="ann\0", reason="\udc80" + "x" * 5000).park("p")
    assert source.p == parked
    assert parked.last_error is not None and parked.last_error.startswith("parked by ann\N{REPLACEMENT CHARACTER}: ?x")
    assert len(parked.last_error) <= MAX_TEXT_CHARACTERS


@pytest.mark.parametrize("prefix", [None, "test"])
def test_item_family_name_reads_back_as_written(prefix: str | None) -> None:
    identifier = source_identifier("clicks", prefix=prefix, family="GLOBAL_STATE")
    assert parse_source_identifier(identifier) == (prefix, "clicks", "GLOBAL_STATE")


@pytest.mark.parametrize("text", ["", "clicks", "|PARTITION", "clicks|", "a|b|c|PARTITION", "|clicks|PARTITION"])
def test_invalid_item_family_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not \[prefix\|\]source\|family"):
        parse_source_identifier(text)
