"""Each trigger fires on its condition, survives restarts of the triggerer, and keeps no state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState, run_name
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.held_leases import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.jobs import JobRecord, Jobs
from airflow_provider_coordination.coordination.partition import PartitionStatus, format_instant
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.triggers import deferral
from airflow_provider_coordination.triggers.conditions import Wanted
from airflow_provider_coordination.triggers.partitions import (
    AcknowledgmentTrigger,
    PartitionsAvailableTrigger,
    PartitionsCompletedTrigger,
    PartitionsReopenedTrigger,
)
from airflow_provider_coordination.triggers.polling import SourcePoller
from airflow_provider_coordination.triggers.supervisor import JobTrigger
from airflow_provider_coordination.triggers.watchers import PollPace, Watchers, install_watchers
from tests.airflow.conftest import SECRET
from tests.support.clock import ManualClock
from tests.support.delivered import RUN, delivered, state, status
from tests.support.watched import QUICK, first_payload, in_loop, pause, payload_of, until

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/events"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
DEADLINE = "2026-02-01T00:00:00.000000Z"
TO_A_TASK = {"deadline": DEADLINE}
REREADING = PollPace(
    poll=0.03, min_pause=0.01, max_retry_pause=0.1, reread_interval=0.03, retry_interval=0.01, gone_after=0.05
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clicks(coordination: SourceCoordinator, store_url: str, clock: ManualClock) -> SourceCoordinator:
    """Return a coordinator of source `clicks` by a clock that stands still."""
    coordinator = SourceCoordinator(
        open_store(StoreSettings.from_url(store_url)),
        "clicks",
        "a job",
        clock=clock,
        retry_policy=RetryPolicy(max_attempts=1, max_closed_count=0),
    )
    coordinator.initialize()
    return coordinator


def acknowledge(sets: AcknowledgmentSets, names: Sequence[str]) -> None:
    for name in names:
        sets.acknowledge(name, positive=True)


def complete(coordinator: SourceCoordinator, *keys: str) -> None:
    for key in keys:
        coordinator.leases.complete(key, {})


# What a triggerer does to every trigger

TRIGGERS = [
    AcknowledgmentTrigger(source="s", acknowledgment_sets=("a", "b"), coordination_conn_id="c", deadline=DEADLINE),
    AcknowledgmentTrigger(source="s", run_name=RUN),
    PartitionsCompletedTrigger(source="s", delivered_until=format_instant(NOON), deadline=DEADLINE),
    PartitionsReopenedTrigger(source="s", reopens_at=format_instant(NOON), partitions=7, partition_keys=("a",)),
    PartitionsAvailableTrigger(source="s", coordination_conn_id="c", interval=timedelta(minutes=2)),
    PartitionsAvailableTrigger(source="s", queue=QUEUE, aws_conn_id=None, region_name="eu-west-1"),
    JobTrigger(source="s", owner="o", coordination_conn_id="c", job_log="/tmp/job/job.log", deadline=DEADLINE),
]


@pytest.mark.parametrize("trigger", TRIGGERS, ids=lambda trigger: type(trigger).__name__)
def test_serialized_trigger_is_restored_by_another_triggerer(trigger: BaseTrigger) -> None:
    classpath, arguments = trigger.serialize()
    again = resolve_name(classpath)(**json.loads(json.dumps(arguments)))
    assert type(again) is type(trigger)
    assert again.serialize() == (classpath, arguments)


def test_serialized_trigger_holds_no_secret(connect: Any) -> None:
    connect("coordination_default", "coordination", password=SECRET, extra={"url": "postgresql://me@host/database"})
    assert SECRET not in json.dumps([trigger.serialize() for trigger in TRIGGERS])


def test_doorbell_interval_must_be_positive() -> None:
    with pytest.raises(ValueError, match="field 'interval' must be a positive timedelta or number of seconds; got 0"):
        PartitionsAvailableTrigger(source="s", interval=0)


def test_doorbell_refuses_what_is_no_queue() -> None:
    with pytest.raises(ConfigurationError, match=r"field 'queue' must be the URL of a queue, .*; got 'events'"):
        PartitionsAvailableTrigger(source="s", queue="events")


def test_event_waits_for_the_deferral_to_settle(
    coordination: SourceCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferral, "SETTLING_SECONDS", 0.3)
    coordination.create_partitions({"a": {}})
    trigger = PartitionsAvailableTrigger(source="clicks", **TO_A_TASK)
    trigger.task_instance = SimpleNamespace(task_id="wait", task=None)  # type: ignore[assignment]

    async def wait(watchers: Watchers) -> tuple[bool, bool]:
        began = asyncio.get_running_loop().time()
        await payload_of(trigger)
        return asyncio.get_running_loop().time() - began >= 0.3, bool(watchers.sources)

    assert in_loop(wait) == (True, False)


# Acknowledgment sets


def test_waiting_trigger_expires_an_overdue_set(
    coordination: SourceCoordinator, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    [waiting] = delivered(clicks, "a", timeout=timedelta(minutes=10))
    trigger = AcknowledgmentTrigger(source="clicks", acknowledgment_sets=[waiting], deadline=DEADLINE)

    payload = first_payload(trigger, clock=clock, while_waiting=lambda: clock.advance(600))

    assert payload == {"status": "ended", "deadline": DEADLINE}
    assert state(clicks, waiting) is AcknowledgmentState.EXPIRED
    assert status(clicks, "a") is PartitionStatus.UNASSIGNED


def test_acknowledgment_trigger_fires_when_its_last_set_ends(coordination: SourceCoordinator) -> None:
    names = delivered(coordination, "a", "b", "c")
    sets = AcknowledgmentSets(coordination)
    acknowledge(sets, names[2:])
    trigger = AcknowledgmentTrigger(source="clicks", acknowledgment_sets=names)

    async def wait(watchers: Watchers) -> tuple[bool, Any]:
        fired = asyncio.create_task(payload_of(trigger))
        await pause(watchers)
        acknowledge(sets, names[:1])
        await pause(watchers)
        early = fired.done()
        sets.acknowledge(names[1], positive=False, reason="too few rows")
        return early, await fired

    assert in_loop(wait) == (False, {"status": "ended", "deadline": None})


def test_acknowledgment_trigger_waits_only_for_its_run(coordination: SourceCoordinator) -> None:
    ours = delivered(coordination, "a", "b")
    theirs = delivered(coordination, "c", run=run_name("dag", "another"))
    sets = AcknowledgmentSets(coordination)

    first_payload(AcknowledgmentTrigger(source="clicks", run_name=RUN), while_waiting=lambda: acknowledge(sets, ours))

    assert state(coordination, theirs[0]) is AcknowledgmentState.PENDING


@pytest.mark.parametrize(
    "chosen", [{"acknowledgment_sets": ["no such set"]}, {"acknowledgment_sets": []}, {"run_name": "no such run"}]
)
def test_sets_that_are_not_pending_are_not_waited_for(coordination: SourceCoordinator, chosen: Any) -> None:
    delivered(coordination, "a")
    assert first_payload(AcknowledgmentTrigger(source="clicks", **chosen))["status"] == "ended"


def test_cleanup_releases_no_lease(coordination: SourceCoordinator) -> None:
    delivered(coordination, "a")

    async def wait(watchers: Watchers) -> None:
        trigger = AcknowledgmentTrigger(source="clicks", run_name=RUN)
        waiting = asyncio.create_task(payload_of(trigger))
        await until(lambda: bool(watchers.sources))
        await pause(watchers)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not watchers.sources

    in_loop(wait)
    partition = coordination.view.get("a")
    assert partition is not None and partition.is_awaiting


def test_kill_releases_awaiting_leases_and_leaves_sets_pending(coordination: SourceCoordinator) -> None:
    ours = delivered(coordination, "a", "b")
    delivered(coordination, "c", run="another run")
    acknowledge(AcknowledgmentSets(coordination), ours[1:])

    in_loop(lambda watchers: AcknowledgmentTrigger(source="clicks", run_name=RUN).on_kill())

    assert [status(coordination, key) for key in "abc"] == [
        PartitionStatus.UNASSIGNED,
        PartitionStatus.COMPLETED,
        PartitionStatus.ASSIGNED,
    ]
    assert state(coordination, ours[0]) is AcknowledgmentState.PENDING
    acknowledge(AcknowledgmentSets(coordination), ours[:1])
    assert status(coordination, "a") is PartitionStatus.COMPLETED


def test_kill_releases_only_the_leases_of_its_sets(coordination: SourceCoordinator) -> None:
    names = delivered(coordination, "a", "b")

    in_loop(
        lambda watchers: AcknowledgmentTrigger(source="clicks", acknowledgment_sets=names[:1]).on_kill(),
    )

    assert [status(coordination, key) for key in "ab"] == [PartitionStatus.UNASSIGNED, PartitionStatus.ASSIGNED]


def test_kill_leaves_the_lease_of_a_working_job(coordination: SourceCoordinator) -> None:
    coordination.create_partitions({"a": {}})
    coordination.leases.acquire(1)
    AcknowledgmentSets(coordination).begin("a", "b", ["downstream"], timeout=timedelta(hours=1), run=RUN)

    in_loop(lambda watchers: AcknowledgmentTrigger(source="clicks", run_name=RUN).on_kill())

    assert status(coordination, "a") is PartitionStatus.ASSIGNED


# Completion


def test_trigger_fires_when_every_partition_is_completed(coordination: SourceCoordinator) -> None:
    coordination.create_partitions({"a": {}, "b": {}})
    coordination.leases.acquire(2)
    complete(coordination, "a")
    trigger = PartitionsCompletedTrigger(source="clicks", deadline=DEADLINE)

    payload = first_payload(trigger, while_waiting=lambda: complete(coordination, "b"))

    assert payload == {"status": "done", "deadline": DEADLINE}


def test_source_without_partitions_is_waited_for(coordination: SourceCoordinator) -> None:
    def work() -> None:
        coordination.create_partitions({"a": {}})
        coordination.leases.acquire(1)
        complete(coordination, "a")

    assert first_payload(PartitionsCompletedTrigger(source="clicks"), while_waiting=work)["status"] == "done"


def test_trigger_fires_when_open_partitions_reach_the_instant(coordination: SourceCoordinator) -> None:
    until_noon = {"delivered_until": format_instant(NOON)}
    before = {"delivered_until": format_instant(NOON - timedelta(seconds=1))}
    coordination.create_partitions({"a": until_noon, "b": before, "c": {}})
    coordination.leases.acquire(3)
    trigger = PartitionsCompletedTrigger(source="clicks", delivered_until=format_instant(NOON))

    def work() -> None:
        coordination.leases.save_progress("b", until_noon)
        coordination.leases.save_progress("c", until_noon)

    assert first_payload(trigger, while_waiting=work)["status"] == "done"


@pytest.mark.parametrize("instant", [None, format_instant(NOON)])
def test_parked_partition_that_is_behind_ends_the_wait(
    coordination: SourceCoordinator, clicks: SourceCoordinator, clock: ManualClock, instant: str | None
) -> None:
    clicks.create_partitions({"a": {}, "b": {}})
    clicks.leases.acquire(2)
    trigger = PartitionsCompletedTrigger(source="clicks", delivered_until=instant)

    payload = first_payload(trigger, clock=clock, while_waiting=lambda: clicks.leases.fail("a", "the sink is broken"))

    assert payload["status"] == "parked"


def test_parked_partition_that_delivered_enough_is_ignored(
    coordination: SourceCoordinator, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    clicks.create_partitions({"a": {"delivered_until": format_instant(NOON)}})
    clicks.leases.acquire(1)
    clicks.leases.fail("a", "the sink is broken")
    trigger = PartitionsCompletedTrigger(source="clicks", delivered_until=format_instant(NOON))

    assert first_payload(trigger, clock=clock)["status"] == "done"


# Reopening and availability


def test_reopened_trigger_fires_when_the_partitions_reopened(
    coordination: SourceCoordinator, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    clicks.create_partitions({"a": {}, "b": {}, "c": {}})
    clicks.leases.acquire(3)
    for key, seconds in (("a", 3600), ("b", 3601), ("c", 9999)):
        clicks.leases.close(key, timedelta(seconds=seconds))
    due = format_instant(clock.now() + timedelta(seconds=3601))
    trigger = PartitionsReopenedTrigger(source="clicks", reopens_at=due, partitions=2, partition_keys=["a", "b"])

    payload = first_payload(trigger, clock=clock, while_waiting=lambda: clock.advance(3601))

    assert payload == {
        "status": "reopened",
        "deadline": None,
        "reopens_at": due,
        "partitions": 2,
        "partition_keys": ["a", "b"],
    }
    assert [status(clicks, key) for key in "abc"] == [
        PartitionStatus.UNASSIGNED,
        PartitionStatus.UNASSIGNED,
        PartitionStatus.CLOSED,
    ]


def test_available_trigger_fires_once_for_a_task(coordination: SourceCoordinator) -> None:
    async def all_events(watchers: Watchers) -> list[Any]:
        trigger = PartitionsAvailableTrigger(source="clicks", interval=0.01, **TO_A_TASK)
        return [fired.payload async for fired in trigger.run()]

    coordination.create_partitions({"a": {}})
    assert in_loop(all_events) == [{"status": "available", "source": "clicks", "deadline": DEADLINE}]


def test_expired_lease_is_work(coordination: SourceCoordinator, clicks: SourceCoordinator, clock: ManualClock) -> None:
    clicks.create_partitions({"a": {}})
    clicks.leases.acquire(1)
    trigger = PartitionsAvailableTrigger(source="clicks", **TO_A_TASK)
    until_others_may_take_it = (DEFAULT_OWNERSHIP_TIMEOUT + DEFAULT_SAFETY_MARGIN).total_seconds()

    payload = first_payload(trigger, clock=clock, while_waiting=lambda: clock.advance(until_others_may_take_it))
    assert payload["status"] == "available"
    assert status(clicks, "a") is PartitionStatus.ASSIGNED


def test_doorbell_does_not_ring_twice_within_its_interval(coordination: SourceCoordinator) -> None:
    coordination.create_partitions({"a": {}})

    async def listen(watchers: Watchers) -> bool:
        trigger = PartitionsAvailableTrigger(source="clicks", interval=3600)
        rings = trigger.run()
        assert (await anext(rings)).payload == {"status": "available", "source": "clicks"}
        again = asyncio.ensure_future(anext(rings))
        await pause(watchers)
        assert watchers.sources  # the source is watched all the time
        rung = again.done()
        again.cancel()
        await asyncio.wait([again])
        await trigger.cleanup()
        assert not watchers.sources
        return rung

    assert not in_loop(listen)


def test_doorbell_rings_again_only_while_work_is_available(
    coordination: SourceCoordinator,
) -> None:
    coordination.create_partitions({"a": {}})

    async def listen(watchers: Watchers) -> bool:
        trigger = PartitionsAvailableTrigger(source="clicks", interval=0.01)
        rings = trigger.run()
        await anext(rings)
        await anext(rings)
        coordination.leases.acquire(1)
        again = asyncio.ensure_future(anext(rings))
        await pause(watchers)
        rung_without_work = again.done()
        coordination.leases.give_up("a")
        await again
        await trigger.cleanup()
        return rung_without_work

    assert not in_loop(listen)


# Connections


def test_deleted_connection_ends_the_wait_with_a_remedy(
    coordination: SourceCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordination.create_partitions({"a": {}})
    trigger = PartitionsCompletedTrigger(source="clicks", deadline=DEADLINE)

    payload = first_payload(
        trigger, pace=REREADING, while_waiting=lambda: monkeypatch.delenv("AIRFLOW_CONN_COORDINATION_DEFAULT")
    )

    assert payload == {
        "status": "error",
        "message": "source 'clicks' is no longer watched: connection 'coordination_default' is not defined; "
        "create it with type 'coordination'",
        "deadline": DEADLINE,
    }


def test_briefly_missing_connection_does_not_end_the_wait(
    coordination: SourceCoordinator, connect: Any, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordination.create_partitions({"a": {}})
    coordination.leases.acquire(1)
    patient = PollPace(poll=0.03, min_pause=0.01, reread_interval=0.03, retry_interval=0.02, gone_after=3600)

    async def wait(watchers: Watchers) -> Any:
        fired = asyncio.create_task(payload_of(PartitionsCompletedTrigger(source="clicks")))
        await pause(watchers)
        monkeypatch.delenv("AIRFLOW_CONN_COORDINATION_DEFAULT")
        await pause(watchers)
        connect("coordination_default", "coordination", extra={"url": store_url})
        complete(coordination, "a")
        return (await fired)["status"]

    assert in_loop(wait, pace=patient) == "done"


def test_broken_connection_ends_the_wait(coordination: SourceCoordinator, connect: Any) -> None:
    coordination.create_partitions({"a": {}})
    payload = first_payload(
        AcknowledgmentTrigger(source="clicks", acknowledgment_sets=delivered(coordination, "b")[:1]),
        pace=REREADING,
        while_waiting=lambda: connect("coordination_default", "coordination", extra={"store": "paper"}),
    )
    assert payload["status"] == "error"
    assert "connection 'coordination_default'" in payload["message"]


def test_unusable_store_ends_the_wait(connect: Any, tmp_path: Any) -> None:
    (tmp_path / "other.db").touch()
    store = open_store(StoreSettings.from_url(f"sqlite:///{tmp_path}/other.db"))
    connect("coordination_default", "coordination", extra={"url": f"sqlite:///{tmp_path}/other.db", "table": "a-b;c"})
    store.close()
    payload = first_payload(PartitionsAvailableTrigger(source="clicks", **TO_A_TASK))
    assert payload["status"] == "error"
    assert "source 'clicks' cannot be polled: " in payload["message"]


def test_changed_url_is_followed(coordination: SourceCoordinator, connect: Any, tmp_path: Any) -> None:
    coordination.create_partitions({"a": {}})
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"
    there = SourceCoordinator(open_store(StoreSettings.from_url(elsewhere)), "clicks", "test")
    there.initialize()
    there.create_partitions({"a": {}})
    there.leases.acquire(1)
    complete(there, "a")

    payload = first_payload(
        PartitionsCompletedTrigger(source="clicks"),
        pace=REREADING,
        while_waiting=lambda: connect("coordination_default", "coordination", extra={"url": elsewhere}),
    )

    assert payload["status"] == "done"


def test_asset_trigger_continues_once_its_connection_is_fixed(
    coordination: SourceCoordinator, connect: Any, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordination.create_partitions({"a": {}})
    monkeypatch.delenv("AIRFLOW_CONN_COORDINATION_DEFAULT")

    async def listen(watchers: Watchers) -> Any:
        trigger = PartitionsAvailableTrigger(source="clicks", interval=0.02)
        ring = asyncio.create_task(payload_of(trigger))
        await asyncio.sleep(0.3)
        assert not ring.done()
        connect("coordination_default", "coordination", extra={"url": store_url})
        return await ring

    assert in_loop(listen, pace=REREADING)["status"] == "available"


# Restarts and doubles


def test_restarted_trigger_finds_events_it_missed(
    coordination: SourceCoordinator, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    names = delivered(clicks, "a", timeout=timedelta(minutes=10))
    trigger = AcknowledgmentTrigger(source="clicks", acknowledgment_sets=names)

    async def begin(watchers: Watchers) -> None:
        running = asyncio.create_task(payload_of(trigger))
        await until(lambda: bool(watchers.sources))
        await pause(watchers)
        assert not running.done()  # the triggerer dies with its loop

    in_loop(begin, clock=clock)
    clock.advance(3600)
    classpath, arguments = trigger.serialize()
    assert first_payload(resolve_name(classpath)(**arguments), clock=clock)["status"] == "ended"
    assert state(clicks, names[0]) is AcknowledgmentState.EXPIRED


def test_two_triggerers_expire_an_overdue_set_exactly_once(
    coordination: SourceCoordinator, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    patient = SourceCoordinator(clicks.store, "clicks", "a job", clock=clock)
    patient.initialize()
    names = delivered(patient, *(f"p{number}" for number in range(8)), timeout=timedelta(minutes=10))

    async def both(watchers: Watchers) -> list[Any]:
        other = Watchers(QUICK, clock)
        ends = []
        for each in (watchers, other):
            install_watchers(each)
            trigger = AcknowledgmentTrigger(source="clicks", acknowledgment_sets=names)
            ends.append(asyncio.create_task(payload_of(trigger)))
            await until(lambda each=each: bool(each.sources))
        await pause(watchers)
        clock.advance(601)
        return await asyncio.gather(*ends)

    assert [payload["status"] for payload in in_loop(both, clock=clock)] == ["ended", "ended"]
    assert {state(clicks, name) for name in names} == {AcknowledgmentState.EXPIRED}
    partitions = list(clicks.view.partitions())
    assert {(p.attempts, p.status) for p in partitions} == {(1, PartitionStatus.UNASSIGNED)}


# Jobs


@pytest.fixture
def job(clicks: SourceCoordinator, clock: ManualClock) -> JobRecord:
    """A job that was submitted, and may begin for an hour."""
    Jobs(clicks.view).submit("a job", task="t", digest="", start_by=clock.now() + timedelta(hours=1))
    return JobRecord(clicks)


JOB = {"owner": "a job", "log": None, "deadline": DEADLINE, "source": "clicks"}


def of_the_job() -> JobTrigger:
    return JobTrigger(source="clicks", owner="a job", deadline=DEADLINE)


def test_job_trigger_fires_when_its_job_ends(job: JobRecord, clock: ManualClock) -> None:
    job.begin()
    payload = first_payload(of_the_job(), clock=clock, while_waiting=lambda: job.end({"exit_code": 0}))
    assert payload == {"status": "ended", **JOB}


def test_unknown_job_counts_as_ended(job: JobRecord, clicks: SourceCoordinator) -> None:
    assert first_payload(JobTrigger(source="clicks", owner="another"))["status"] == "ended"


def test_job_trigger_fires_when_the_heartbeat_expires(job: JobRecord, clock: ManualClock) -> None:
    job.begin()
    clock.advance((DEFAULT_OWNERSHIP_TIMEOUT + DEFAULT_SAFETY_MARGIN).total_seconds() - 1)
    payload = first_payload(of_the_job(), clock=clock, while_waiting=lambda: clock.advance(1))
    assert payload == {"status": "overdue", **JOB}


def test_job_trigger_fires_on_a_start_timeout(job: JobRecord, clock: ManualClock) -> None:
    payload = first_payload(of_the_job(), clock=clock, while_waiting=lambda: clock.advance(3600))
    assert payload == {"status": "overdue", **JOB}


def test_watcher_sleeps_until_the_job_would_expire(job: JobRecord, clicks: SourceCoordinator) -> None:
    job.begin()
    result = SourcePoller(clicks, AcknowledgmentSets(clicks)).poll(Wanted.JOBS)
    assert result.snapshot.jobs == {"a job": False}
    assert result.next_due == clicks.clock.now() + DEFAULT_OWNERSHIP_TIMEOUT + DEFAULT_SAFETY_MARGIN
