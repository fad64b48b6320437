"""Requests of a group are taken once, and its host is found while it can take some."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.groups import (
    MAX_SEALED_CHARACTERS,
    GroupRequests,
    group_identifier,
)
from airflow_provider_coordination.coordination.jobs import JobRecord, Jobs
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.clock import ManualClock

TIMEOUT, MARGIN = timedelta(seconds=60), timedelta(seconds=2)
GROUP = group_identifier("small", "1a2b3c4d")


class Place:
    """A store, and coordinators of what is in it."""

    def __init__(self) -> None:
        self.store, self.clock = InMemoryStore(), ManualClock()

    def coordinator(self, source: str, owner: str) -> SourceCoordinator:
        coordinator = SourceCoordinator(
            self.store, source, owner, ownership_timeout=TIMEOUT, safety_margin=MARGIN, clock=self.clock
        )
        coordinator.initialize()
        return coordinator

    def requests(self) -> GroupRequests:
        return GroupRequests(self.coordinator(GROUP, "launcher").view)

    def host(self, owner: str, *, begins: bool = True, takes: bool = True) -> JobRecord:
        self.requests().jobs.submit(owner, task="t", digest="", start_by=self.clock.now() + timedelta(minutes=10))
        record = JobRecord(self.coordinator(GROUP, owner))
        if begins:
            record.begin()
            if takes:
                record.note_reading()
        return record


@pytest.fixture
def place() -> Place:
    return Place()


def test_request_is_taken_by_one_host_only(place: Place) -> None:
    place.requests().add("job", "clicks", "sealed")
    one, other = place.requests(), place.requests()
    [first], [second] = one.waiting(), other.waiting()
    assert (first.owner, first.source, first.sealed) == ("job", "clicks", "sealed")
    assert (one.take(first), other.take(second), one.waiting()) == (True, False, [])


def test_repeated_request_changes_nothing(place: Place) -> None:
    place.requests().add("job", "clicks", "sealed")
    place.requests().add("job", "clicks", "again")
    assert [each.sealed for each in place.requests().waiting()] == ["sealed"]


def test_withdrawn_request_is_taken_by_nobody(place: Place) -> None:
    requests = place.requests()
    requests.add("job", "clicks", "sealed")
    [waiting] = requests.waiting()
    requests.withdraw("job")
    requests.withdraw("job")
    assert (requests.take(waiting), requests.waiting()) == (False, [])


def test_refused_jobs_end_with_the_reason(place: Place) -> None:
    jobs = Jobs(place.coordinator("clicks", "supervisor").view)
    jobs.submit("job", task="t", digest="", start_by=place.clock.now() + TIMEOUT)
    requests = place.requests()
    requests.add("job", "clicks", "sealed")
    requests.refuse({"exit_code": 78, "error": "no Java"})
    job = jobs.get("job")
    assert job is not None and job.outcome == {"exit_code": 78, "error": "no Java"}
    assert requests.waiting() == []


def test_settings_beyond_the_limit_of_an_item_are_refused(place: Place) -> None:
    with pytest.raises(ConfigurationError, match=r"source 'clicks' have 60001 characters.* leave 'group' out"):
        place.requests().add("job", "clicks", "x" * (MAX_SEALED_CHARACTERS + 1))


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([], None),
        ([("a", False, False)], "a"),
        ([("a", False, False), ("b", True, False)], "b"),
        ([("a", True, False), ("b", True, True)], "b"),
        ([("b", True, True), ("a", True, True)], "a"),
    ],
)
def test_running_host_is_found_before_others(
    place: Place, hosts: list[tuple[str, bool, bool]], expected: str | None
) -> None:
    for owner, begins, takes in hosts:
        place.host(owner, begins=begins, takes=takes)
    found = place.requests().host()
    assert (None if found is None else found.owner) == expected
    assert place.requests().host(besides=expected or "") != found or found is None


def test_host_that_cannot_take_requests_is_not_found(place: Place) -> None:
    place.host("ended").end({"exit_code": 0})
    place.host("ending").note(stop="it ends")
    place.host("late", begins=False)
    place.host("dead")
    place.clock.advance(600)
    assert place.requests().host() is None
