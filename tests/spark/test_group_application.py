"""A host runs the jobs of a group: a failing one stops no other, and all stop with the host."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.groups import MemberRequest
from airflow_provider_coordination.coordination.jobs import JobRecord, JobState
from airflow_provider_coordination.spark import group_application
from airflow_provider_coordination.spark.group_application import Host, Register, serve_group
from airflow_provider_coordination.spark.outcome import EXIT_FAILED, EXIT_SUCCESS, FollowedJob, Outcome
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.group_hosts import GROUP, FakeApplications, Requester, coordinator, host_settings
from tests.support.waiting import until

WAIT_SECONDS = 60.0


class World:
    """A group in a store that several processes use."""

    def __init__(self, folder: Path) -> None:
        self.settings = StoreSettings.from_url(f"sqlite:///{folder}/coordination.db")
        self.store = open_store(self.settings)
        self.requester = Requester(self.store)
        self.applications = FakeApplications(self.store)
        self.stop = threading.Event()

    def serve(self, owner: str = "host") -> Outcome:
        return serve_group(host_settings(owner, self.settings), None, self.store, self.applications, self.stop)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, seconds in (("POLL_SECONDS", 0.01), ("IDLE_SECONDS", 0.1), ("LAST_LOOK_SECONDS", 0.05)):
        monkeypatch.setattr(group_application, name, seconds)
    return World(tmp_path)


def state(world: World, owner: str) -> JobState | None:
    job = world.requester.requests.jobs.get(owner)
    return None if job is None else job.state


def test_idle_host_ends_after_its_members(world: World) -> None:
    for owner in ("a", "b"):
        world.requester.request(owner)
    assert world.serve().exit_code == EXIT_SUCCESS
    assert world.applications.begun == {"a": 1, "b": 1}
    assert state(world, "host") is JobState.ENDED
    assert world.requester.requests.host() is None


@pytest.mark.parametrize("error", [ValueError("broken"), MemoryError(), SystemExit(3)])
def test_failing_member_ends_only_its_thread(world: World, error: BaseException) -> None:
    others = threading.Event()

    def work(request: MemberRequest) -> None:
        if request.owner == "bad":
            raise error
        if others.wait(WAIT_SECONDS):
            return
        raise AssertionError("nobody lets it end")

    world.applications.work = work
    for owner in ("bad", "good"):
        world.requester.request(owner)
    serving = threading.Thread(target=world.serve)
    serving.start()
    until(lambda: world.requester.outcome("bad") is not None)
    assert world.requester.outcome("good") is None
    others.set()
    serving.join(WAIT_SECONDS)
    bad = world.requester.outcome("bad")
    assert bad is not None and bad.exit_code == EXIT_FAILED
    assert type(error).__name__ in (bad.error or "")
    assert world.requester.outcome("good") == Outcome(exit_code=EXIT_SUCCESS)


def test_unreadable_settings_end_the_job_with_the_reason(world: World) -> None:
    def unsealing(request: MemberRequest, register: Register) -> None:
        raise CoordinationError("its settings were not sealed with the key of this group")

    world.applications.run = unsealing  # type: ignore[method-assign]
    world.requester.request("a")
    assert world.serve().exit_code == EXIT_SUCCESS
    outcome = world.requester.outcome("a")
    assert outcome is not None and "not sealed with the key of this group" in (outcome.error or "")


def test_stopped_host_stops_members_and_takes_no_request(world: World) -> None:
    seen: list[bool] = []

    def work(request: MemberRequest) -> None:
        world.stop.set()
        until(lambda: world.requester.requests.host() is None)
        world.requester.request("late")
        followed = host._followed[request.owner]
        until(lambda: followed.is_stopped)
        seen.append(followed.is_stopped)

    world.applications.work = work
    host: Host
    made = group_application.Host

    def making(*arguments: object, **options: object) -> Host:
        nonlocal host
        host = made(*arguments, **options)  # type: ignore[arg-type]
        return host

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_application, "Host", making)
        world.requester.request("a")
        assert world.serve().exit_code == EXIT_SUCCESS
    assert seen == [True]
    assert [request.owner for request in world.requester.requests.waiting()] == ["late"]


def test_job_that_registers_late_is_stopped_as_well(world: World) -> None:
    host = Host(world.requester.requests, world.applications.run, world.stop)
    host.end()
    followed = FollowedJob()
    host._register("late", followed)
    assert followed.is_stopped


def test_old_host_takes_no_request_and_ends_with_its_jobs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_application, "LIFETIME_SECONDS", 0.2)
    monkeypatch.setattr(group_application, "IDLE_SECONDS", WAIT_SECONDS)

    def work(request: MemberRequest) -> None:
        until(lambda: world.requester.requests.host() is None)
        threading.Event().wait(5 * group_application.LAST_LOOK_SECONDS)
        if not world.requester.jobs("clicks").get("late"):
            world.requester.request("late")

    world.applications.work = work
    ended = FollowedJob.record_outcome

    def alone(followed: FollowedJob, outcome: Outcome) -> None:
        world.stop.set()  # so that it does not go on as another host
        ended(followed, outcome)

    world.requester.request("a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FollowedJob, "record_outcome", alone)
        world.serve()
    assert world.applications.begun == {"a": 1}
    assert [request.owner for request in world.requester.requests.waiting()] == ["late"]


def test_host_that_cannot_start_refuses_waiting_jobs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(followed: FollowedJob) -> None:
        raise ValueError("no Java")

    monkeypatch.setattr(world.applications, "start", failing)
    world.requester.request("a")
    assert world.serve().exit_code == EXIT_FAILED
    outcome = world.requester.outcome("a")
    assert outcome is not None and outcome.exit_code == EXIT_FAILED
    assert "the Spark application of group 'small' ended: the job failed: ValueError: no Java" in (outcome.error or "")


def test_second_host_leaves_the_group_to_a_running_one(world: World) -> None:
    running = JobRecord(coordinator(world.store, GROUP, "running"))
    running.begin()
    running.note_reading()
    world.requester.request("a")
    assert world.serve("another").exit_code == EXIT_SUCCESS
    assert (world.applications.begun, state(world, "another")) == ({}, JobState.ENDED)
    assert [request.owner for request in world.requester.requests.waiting()] == ["a"]


@pytest.mark.parametrize(("owner", "goes_on"), [("a", True), ("z", False)])
def test_host_with_the_smaller_name_goes_on_if_two_start(world: World, owner: str, goes_on: bool) -> None:
    JobRecord(coordinator(world.store, GROUP, "k")).begin()
    world.requester.request("job")
    world.serve(owner)
    assert bool(world.applications.begun) is goes_on


def test_host_yields_to_one_that_began_while_spark_started(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = JobRecord(coordinator(world.store, GROUP, "k"))
    start = world.applications.start

    def starting(followed: FollowedJob) -> None:
        start(followed)
        other.begin()

    monkeypatch.setattr(world.applications, "start", starting)
    world.requester.request("job")
    assert world.serve("z").exit_code == EXIT_SUCCESS
    assert (world.applications.begun, state(world, "k")) == ({}, JobState.STARTING)


def test_request_after_the_end_is_served_by_the_same_process(world: World) -> None:
    ended = FollowedJob.record_outcome

    def requesting(followed: FollowedJob, outcome: Outcome) -> None:
        ended(followed, outcome)
        if not world.requester.jobs("clicks").get("late"):
            world.requester.request("late")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FollowedJob, "record_outcome", requesting)
        world.serve()
    assert world.applications.begun == {"late": 1}
    assert [state(world, owner) for owner in ("host", "host:2", "host:3")] == [JobState.ENDED, JobState.ENDED, None]
