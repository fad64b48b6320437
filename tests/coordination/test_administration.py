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
from airflow_provider_coordination.coordination.storable_text import MAX_TEXT_CHARACTERS
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores.in_memory import InMemoryStore
from airflow_provider_coordination.stores.sql import SqlStore
from tests.support.clock import ManualClock

FAMILY = "test|clicks|PARTITION"


class Office:
    """A store, the owner `a` who works on its partitions, and the person."""

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
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Office]:
    sqlite = request.param == "sqlite"
    store = SqlStore(f"sqlite:///{tmp_path}/c.db", table="coordination_partition") if sqlite else InMemoryStore()
    yield Office(store)
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
def test_a_partition_that_does_not_exist_is_named(office: Office, operation: Operation) -> None:
    with pytest.raises(PartitionNotFoundError, match=r"partition 'p' of 'test\|clicks\|PARTITION' does not exist"):
        operation(office.person)


def test_a_released_partition_waits_with_its_progress_and_failures(office: Office) -> None:
    office.failed()
    office.a.leases.acquire(1)
    office.clock.advance(10)
    written = office.person.release("p")
    assert written == office.p
    assert (written.status, written.owner, written.progress) == (PartitionStatus.UNASSIGNED, None, {"n": 1})
    assert (written.attempts, written.priority) == (1, office.clock.now())


def test_what_a_reset_makes_of_the_progress_is_made_of_the_one_that_is_written_over(office: Office) -> None:
    office.leased()
    seen = office.person.get("p")
    office.a.leases.save_progress("p", {"n": 41})

    written = office.person.reset("p", lambda partition: {"n": partition.progress["n"] + 1}, expected=seen)

    assert written.progress == {"n": 42}


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_every_write_of_the_former_owner_is_refused(office: Office, operation: str) -> None:
    office.leased()
    OPERATIONS[operation](office.person)
    with pytest.raises((PartitionNotOwnedError, PartitionNotFoundError)):
        office.a.leases.save_progress("p", {"n": 7})
    assert not office.a.leases.held


def test_a_lease_that_ran_out_can_be_released_too(office: Office) -> None:
    office.leased()
    office.clock.advance(1000)
    assert office.person.release("p").owner is None


@pytest.mark.parametrize("current", ["waiting", "resting", "completed"])
def test_what_nobody_holds_is_not_released(office: Office, current: str) -> None:
    getattr(office, current)()
    before = office.p
    with pytest.raises(PartitionStatusError, match=r"partition 'p' is \w+: it has no owner"):
        office.person.release("p")
    assert office.p == before


@pytest.mark.parametrize("current", ["resting", "parked"])
def test_a_reopened_partition_is_available_at_once_with_its_failures_forgotten(office: Office, current: str) -> None:
    getattr(office, current)()
    written = office.person.reopen("p")
    assert (written.status, written.attempts, written.last_error) == (PartitionStatus.UNASSIGNED, 0, None)
    assert written.progress == {"n": 1}
    assert [p.partition_key for p in office.owner("b").leases.acquire(1)] == ["p"]


def test_reopening_what_waits_after_a_failure_forgets_the_failure_and_keeps_its_place(office: Office) -> None:
    office.failed()
    before = office.p
    office.clock.advance(10)
    written = office.person.reopen("p")
    assert (before.attempts, written.attempts, written.last_error) == (1, 0, None)
    assert written.priority == before.priority


def test_reopening_what_waits_for_a_later_time_makes_it_available_now(office: Office) -> None:
    office.leased()
    office.a.leases.give_up("p", after=timedelta(hours=1))
    assert office.person.reopen("p").priority == office.clock.now()


@pytest.mark.parametrize(
    ("current", "message"),
    [
        ("completed", "partition 'p' is COMPLETED: all its data is delivered; use reset"),
        ("leased", "partition 'p' is ASSIGNED: a works on it; use release"),
        ("waiting", "partition 'p' is UNASSIGNED: it already waits for an owner"),
    ],
)
def test_what_is_not_closed_is_not_reopened(office: Office, current: str, message: str) -> None:
    getattr(office, current)()
    with pytest.raises(PartitionStatusError, match=message):
        office.person.reopen("p")


@pytest.mark.parametrize("current", ["waiting", "leased", "failed", "resting", "parked", "completed"])
def test_a_partition_is_reset_wherever_it_stands(office: Office, current: str) -> None:
    getattr(office, current)()
    version = office.p.version
    office.clock.advance(10)
    written = office.person.reset("p", {"n": 0})
    assert written == office.p
    assert written == Partition(
        source_identifier=FAMILY,
        partition_key="p",
        status=PartitionStatus.UNASSIGNED,
        priority=office.clock.now(),
        progress={"n": 0},
        version=version + 1,
    )


def test_a_reset_overwrites_progress_that_cannot_be_read() -> None:
    office = Office(InMemoryStore())
    office.store.create(
        [
            Partition(
                source_identifier=FAMILY,
                partition_key="p",
                status=PartitionStatus.UNASSIGNED,
                priority=office.clock.now(),
                unreadable_progress="[1, 2",
            )
        ]
    )
    assert office.p.unreadable_progress == "[1, 2"
    written = office.person.reset("p", {"n": 0})
    assert (written.progress, written.unreadable_progress) == ({"n": 0}, None)


def test_what_is_no_json_is_not_stored(office: Office) -> None:
    office.waiting()
    with pytest.raises(ProgressError, match="its progress is not JSON"):
        office.person.reset("p", {"n": {1}})


@pytest.mark.parametrize("current", ["waiting", "leased", "resting", "completed"])
def test_a_partition_is_deleted_wherever_it_stands(office: Office, current: str) -> None:
    getattr(office, current)()
    before = office.p
    assert office.person.delete("p") == before
    assert office.store.get(FAMILY, "p") is None


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_renewals_and_progress_since_the_person_looked_do_not_matter(office: Office, operation: str) -> None:
    office.leased()
    seen = office.p
    office.a.leases.save_progress("p", {"n": 5})
    office.a.leases.renew("p")
    written = OPERATIONS[operation](office.person, seen)
    assert written.progress == ({"n": 0} if operation == "reset" else {"n": 5})


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_another_owner_than_the_person_saw_is_left_alone(office: Office, operation: str) -> None:
    office.leased()
    seen = office.p
    office.a.leases.give_up("p")
    office.owner("b").leases.acquire(1)
    before = office.p
    with pytest.raises(
        PartitionUpdateError, match="has changed in the meantime: it was ASSIGNED to a and is now ASSIGNED to b"
    ):
        OPERATIONS[operation](office.person, seen)
    assert office.p == before


def test_a_partition_that_was_deleted_in_the_meantime_is_said_to_be_gone(office: Office) -> None:
    office.leased()
    seen = office.p
    office.person.delete("p")
    with pytest.raises(PartitionNotFoundError, match="'p'"):
        office.person.release("p", expected=seen)


class LosesAnswers(InMemoryStore):
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
def test_a_write_whose_answer_was_lost_is_recognised(operation: Operation) -> None:
    store = LosesAnswers()
    status = PartitionStatus.CLOSED if operation is OPERATIONS["reopen"] else PartitionStatus.ASSIGNED
    clock = ManualClock()
    store.create([Partition(source_identifier=FAMILY, partition_key="p", status=status, priority=clock.now())])
    assert operation(Administration(store, FAMILY, clock)).partition_key == "p"
    stored = store.get(FAMILY, "p")
    becomes = PartitionStatus.CLOSED if operation is OPERATIONS["park"] else PartitionStatus.UNASSIGNED
    assert stored is None or (stored.status, stored.version) == (becomes, 1)


class RenewedBeforeEachWrite(InMemoryStore):
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
    return person_at(RenewedBeforeEachWrite(times))


def person_at(store: InMemoryStore) -> Administration:
    clock = ManualClock()
    lease = Partition(
        source_identifier=FAMILY, partition_key="p", status=PartitionStatus.ASSIGNED, priority=clock.now(), owner="a"
    )
    store.create([lease])
    return Administration(store, FAMILY, clock)


@pytest.mark.parametrize("operation", ["release", "reset", "delete"])
def test_it_tries_again_when_the_owner_was_faster(operation: str) -> None:
    assert OPERATIONS[operation](renewed_before_each_write(MAX_TRIES - 1)).partition_key == "p"


@pytest.mark.parametrize("operation", ["release", "reset", "delete"])
def test_it_does_not_try_for_ever(operation: str) -> None:
    with pytest.raises(
        PartitionUpdateError, match=f"partition 'p' changed {MAX_TRIES} times during the write; try again"
    ):
        OPERATIONS[operation](renewed_before_each_write(MAX_TRIES))


def test_one_line_reports_what_was_done_to_whose_partition(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    office.leased()
    caplog.clear()
    office.person.release("p")
    office.person.delete("p")
    assert caplog.messages == [
        "partition released by hand: source=clicks partition=p previous_status=ASSIGNED previous_owner=a "
        "by=None reason=''",
        "partition deleted by hand: source=clicks partition=p previous_status=UNASSIGNED previous_owner=None "
        "by=None reason=''",
    ]


# Parking


@pytest.mark.parametrize("current", ["waiting", "leased", "failed", "resting"])
def test_a_parked_partition_waits_for_a_person_with_its_progress_and_failures(office: Office, current: str) -> None:
    getattr(office, current)()
    before = office.p
    written = office.ann.park("p")
    assert written == office.p
    assert (written.status, written.is_parked, written.owner) == (PartitionStatus.CLOSED, True, None)
    assert (written.progress, written.attempts) == (before.progress, before.attempts)
    office.clock.advance(10**8)
    assert office.owner("b").leases.acquire(1) == [] and office.a.reopen_due() == []


def test_a_parked_partition_says_who_parked_it_and_why_and_what_was_wrong_before(office: Office) -> None:
    office.waiting()
    assert office.ann.park("p").last_error == "parked by ann: it is too hot"
    office.person.reopen("p")
    assert office.person.park("p").last_error == "parked by hand"
    office.person.reopen("p")
    office.a.leases.acquire(1)
    office.a.leases.fail("p", "no luck")
    assert office.ann.park("p").last_error == "parked by ann: it is too hot; before that: no luck"


def test_a_partition_that_was_parked_by_hand_is_reopened(office: Office) -> None:
    office.failed()
    office.ann.park("p")
    written = office.person.reopen("p")
    assert (written.status, written.attempts, written.last_error) == (PartitionStatus.UNASSIGNED, 0, None)
    assert [p.partition_key for p in office.owner("b").leases.acquire(1)] == ["p"]


@pytest.mark.parametrize(
    ("current", "message"),
    [
        ("completed", "partition 'p' is COMPLETED: all its data is delivered, so there is nothing to park"),
        ("parked", "partition 'p' is already parked"),
    ],
)
def test_what_is_finished_or_parked_is_not_parked(office: Office, current: str, message: str) -> None:
    getattr(office, current)()
    before = office.p
    with pytest.raises(PartitionStatusError, match=message):
        office.person.park("p")
    assert office.p == before


# The version that the person saw


def standing_for(office: Office, operation: str) -> None:
    office.resting() if operation == "reopen" else office.leased()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_version_that_the_person_saw_is_changed(office: Office, operation: str) -> None:
    standing_for(office, operation)
    written = OPERATIONS[operation](office.person, version=office.p.version)
    assert written.partition_key == "p"


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_whatever_was_written_since_the_person_looked_makes_the_version_another_one(
    office: Office, operation: str
) -> None:
    office.leased()
    seen = office.p
    office.a.leases.renew("p")
    before = office.p
    with pytest.raises(
        PartitionUpdateError,
        match=rf"partition 'p' has changed since it was read: version {seen.version} was read, and it is now "
        rf"ASSIGNED to a, version {before.version}; check it again",
    ):
        OPERATIONS[operation](office.person, version=seen.version)
    assert office.p == before


def test_an_error_about_a_stale_version_reports_the_current_status(office: Office) -> None:
    office.waiting()
    seen = office.p
    office.person.park("p")
    for operation in OPERATIONS.values():
        with pytest.raises(PartitionUpdateError, match=r"it is now CLOSED \(parked\), version"):
            operation(office.person, version=seen.version)
    office.person.reset("p", {})
    with pytest.raises(PartitionUpdateError, match=r"it is now UNASSIGNED, version"):
        office.person.release("p", version=seen.version)


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_a_write_in_the_last_moment_makes_the_version_another_one(operation: str) -> None:
    person = renewed_before_each_write(1)
    with pytest.raises(PartitionUpdateError, match=r"version 0 was read, and it is now ASSIGNED to a, version 1"):
        OPERATIONS[operation](person, version=0)
    assert person.get("p").version == 1


class TakenBeforeEachWrite(RenewedBeforeEachWrite):
    """Another owner is faster, this number of times."""

    def renew(self) -> None:
        stored = self.get(FAMILY, "p")
        if self.times and stored is not None:
            self.times -= 1
            InMemoryStore.transact(self, update=[stored.acquired("b", stored.priority)])


@pytest.mark.parametrize("operation", ["release", "park", "reset", "delete"])
def test_a_version_that_another_took_in_the_last_moment_is_reported_with_its_version(operation: str) -> None:
    person = person_at(TakenBeforeEachWrite(1))
    with pytest.raises(PartitionUpdateError, match=r"version 0 was read, and it is now ASSIGNED to b, version 1"):
        OPERATIONS[operation](person, version=0)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_write_of_a_version_whose_answer_was_lost_is_recognised(operation: Operation) -> None:
    store = LosesAnswers()
    status = PartitionStatus.CLOSED if operation is OPERATIONS["reopen"] else PartitionStatus.ASSIGNED
    clock = ManualClock()
    store.create([Partition(source_identifier=FAMILY, partition_key="p", status=status, priority=clock.now())])
    assert operation(Administration(store, FAMILY, clock), version=0).partition_key == "p"


# Who and why


@pytest.mark.parametrize("operation", OPERATIONS)
def test_who_did_it_and_why_is_logged(office: Office, operation: str, caplog: pytest.LogCaptureFixture) -> None:
    standing_for(office, operation)
    with caplog.at_level(logging.INFO):
        OPERATIONS[operation](office.ann)
    assert caplog.messages[-1].endswith("by=ann reason='it is too hot'")


class Remembers(InMemoryStore):
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
def test_the_history_records_who_did_it_and_why(operation: str, done: str) -> None:
    store = Remembers()
    office = Office(store)
    standing_for(office, operation)
    store.changes.clear()
    OPERATIONS[operation](office.ann)
    assert store.changes == [(f"{done} by hand: it is too hot", "ann")]


def test_whatever_a_person_says_can_be_stored(office: Office) -> None:
    office.waiting()
    parked = Administration(office.store, FAMILY, office.clock, by="ann\0", reason="\udc80" + "x" * 5000).park("p")
    assert office.p == parked
    assert parked.last_error is not None and parked.last_error.startswith("parked by ann\N{REPLACEMENT CHARACTER}: ?x")
    assert len(parked.last_error) <= MAX_TEXT_CHARACTERS


@pytest.mark.parametrize("prefix", [None, "test"])
def test_the_name_of_an_item_family_is_read_as_it_was_written(prefix: str | None) -> None:
    identifier = source_identifier("clicks", prefix=prefix, family="GLOBAL_STATE")
    assert parse_source_identifier(identifier) == (prefix, "clicks", "GLOBAL_STATE")


@pytest.mark.parametrize("text", ["", "clicks", "|PARTITION", "clicks|", "a|b|c|PARTITION", "|clicks|PARTITION"])
def test_what_is_no_name_of_an_item_family_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not \[prefix\|\]source\|family"):
        parse_source_identifier(text)
