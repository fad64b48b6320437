"""A supervisor's decisions case by case: number of jobs, next look, and notes about their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from airflow_provider_coordination.coordination.jobs import Job, JobState
from airflow_provider_coordination.supervisor.decisions import Decision, backoff, decide, task_count, wanted_job_count
from airflow_provider_coordination.supervisor.job_plan import SUBMIT_TIMEOUT, RequestStop, StartJob
from airflow_provider_coordination.supervisor.observation import LagPoint, Observation, PartitionCounts
from airflow_provider_coordination.supervisor.settings import AutoScaleSettings, SuperviseSettings
from airflow_provider_coordination.supervisor.supervision import SupervisedJob, Supervision

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MARGIN = timedelta(seconds=10)
OUT, IN = 6_000_000, 1_000_000


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def seen(at: datetime = NOON, *, partitions: int = 9, **changes: Any) -> Observation:
    counts = PartitionCounts(readable=partitions, unfinished=partitions, is_empty=not partitions)
    settings = changes.pop("settings", SuperviseSettings(**changes.pop("supervise", {})))
    return Observation(**{"at": at, "settings": settings, "partitions": counts, "safety_margin": MARGIN, **changes})


def memory(**changes: Any) -> Supervision:
    return Supervision(**{"spec_version": 1, "started_at": NOON - HOUR, "polled_at": NOON, **changes})


def job(owner: str = "job", began: datetime | None = NOON, **changes: Any) -> SupervisedJob:
    return SupervisedJob(**{"owner": owner, "spec_version": 1, "planned_at": NOON, "began_at": began, **changes})


def running(*owners: str, until: datetime = NOON + 10 * HOUR) -> dict[str, Job]:
    return {owner: Job(owner=owner, state=JobState.RUNNING, since=until) for owner in owners}


def decided(remembered: Supervision, observed: Observation) -> Decision:
    numbers = count(1)
    return decide(remembered, observed, lambda: f"new-{next(numbers)}")


# How many


@pytest.mark.parametrize(
    ("remembered", "observed", "wanted", "reason"),
    [
        (memory(), seen(supervise={"task_count": 3}), 3, "as configured in the spec"),
        (memory(), seen(supervise={"task_count": 3}, partitions=2), 2, "2 partitions can be read"),
        (memory(), seen(supervise={"task_count": 3}, is_suspended=True), 0, "the source is suspended"),
        (memory(terminated_at=NOON), seen(settings=None), 0, "the supervisor is terminated"),
        (memory(), seen(settings=None), None, "no spec can be read"),
        (memory(), replace(seen(), partitions=None), None, "the partitions are unknown"),
    ],
    ids=["spec", "few partitions", "suspended", "terminated", "unreadable spec", "unknown partitions"],
)
def test_task_count_has_its_reason(
    remembered: Supervision, observed: Observation, wanted: int | None, reason: str
) -> None:
    assert wanted_job_count(remembered, observed) == (wanted, reason)


@pytest.mark.parametrize(
    ("scaled", "least", "most", "expected"), [(None, 1, 9, 2), (5, 1, 9, 5), (5, 1, 4, 4), (5, 6, 9, 6)]
)
def test_scaled_count_survives_a_spec_with_fitting_bounds(
    scaled: int | None, least: int, most: int, expected: int
) -> None:
    settings = SuperviseSettings(
        task_count=2, auto_scale=AutoScaleSettings(task_count_min=least, task_count_max=most)
    )  # fmt: skip
    assert task_count(memory(task_count=scaled), settings) == expected


def test_scaled_count_is_forgotten_without_scaling() -> None:
    assert task_count(memory(task_count=5), SuperviseSettings(task_count=2)) == 2


def test_changed_spec_count_is_noted_with_its_version() -> None:
    remembered = memory(spec_version=4, planned_count=2)
    [change] = decided(remembered, seen(supervise={"task_count": 3})).supervision.task_count_changes
    assert (change.before, change.after, change.reason) == (2, 3, "version 4 of the spec")


def test_unreadable_spec_leaves_every_job_alone() -> None:
    remembered = memory(jobs=(job("a"), job("b")))
    assert decided(remembered, seen(settings=None, jobs=running("a", "b"))).actions == ()


def test_surplus_ends_jobs_not_begun_then_the_oldest() -> None:
    remembered = memory(
        jobs=(job("old", NOON - HOUR), job("new"), job("waiting", None)), surplus_since=NOON - seconds(120)
    )
    submitted = {"waiting": Job(owner="waiting", state=JobState.SUBMITTED, since=NOON)}
    decision = decided(remembered, seen(partitions=1, jobs={**running("old", "new"), **submitted}))
    assert [each.owner for each in decision.supervision.jobs if each.is_ending] == ["old", "waiting"]


def test_temporary_surplus_is_forgotten() -> None:
    remembered = memory(jobs=(job("a"), job("b")))
    jobs, two = running("a", "b"), {"task_count": 2}
    first = decided(remembered, seen(NOON, partitions=1, supervise=two, jobs=jobs)).supervision
    assert first.surplus_since == NOON
    second = decided(first, seen(NOON + seconds(110), supervise=two, jobs=jobs)).supervision
    assert second.surplus_since is None


# When


@pytest.mark.parametrize(("failures", "pause"), [(0, 0), (1, 30), (2, 60), (5, 480), (6, 600), (50, 600), (9999, 600)])
def test_pause_after_failures_doubles_up_to_ten_minutes(failures: int, pause: int) -> None:
    assert backoff(seconds(30), failures) == seconds(pause)


def never(remembered: Supervision) -> Supervision:
    return remembered


@pytest.mark.parametrize(
    ("change", "jobs", "due"),
    [
        (lambda m: replace(m, start_after=NOON + seconds(7), jobs=()), {}, 7),
        (lambda m: replace(m, started_at=NOON, jobs=()), {}, 5),
        (never, running("job", until=NOON + seconds(8)), 18),
        (never, running("job"), 30),
        (lambda m: replace(m, jobs=(job(began=NOON - HOUR + seconds(9)),)), running("job"), 9),
        (lambda m: replace(m, jobs=(job(began=None, planned_at=NOON - SUBMIT_TIMEOUT + seconds(6)),)), {}, 6),
        (
            lambda m: replace(m, jobs=(job(stop_requested_at=NOON - seconds(1800 - 4)),)),
            {"job": replace(running("job")["job"], stop="enough")},
            4,
        ),
    ],
    ids=["backoff", "start delay", "lease of a job", "period", "duration of a job", "submission", "completion"],
)
def test_next_poll_is_at_the_next_due_time(
    change: Callable[[Supervision], Supervision], jobs: dict[str, Job], due: float
) -> None:
    remembered = change(memory(jobs=(job(),)))
    assert decided(remembered, seen(jobs=jobs)).next_due == NOON + seconds(due)


# Scaling over time


def scaling(**changes: Any) -> dict[str, Any]:
    return {"task_count": 1, "auto_scale": AutoScaleSettings(task_count_min=1, task_count_max=8, **changes)}


def lags(until: datetime, lag: int, points: int = 21) -> tuple[LagPoint, ...]:
    instants = (until - seconds(30 * number) for number in reversed(range(points)))
    return tuple(LagPoint(at=at, oldest_ms=lag, sum_ms=lag, count=1) for at in instants)


def scaled_memory(jobs: int = 1, began: datetime = NOON, **changes: Any) -> Supervision:
    """Return the memory of a supervisor that started at noon, with jobs that read."""
    reading = tuple(job(f"job-{number}", began) for number in range(jobs))
    return memory(started_at=NOON, jobs=reading, **changes)


def after(remembered: Supervision, elapsed: float, lag: int | Sequence[LagPoint] = OUT, **changes: Any) -> Supervision:
    """What is remembered this long after the supervisor's start, if the lag was this all the time, or these points."""
    at = NOON + seconds(elapsed)
    standing = running(*(each.owner for each in remembered.jobs))
    observed = {
        "supervise": scaling(),
        "lag": lags(at, lag) if isinstance(lag, int) else lag,
        "jobs": standing,
        **changes,
    }
    return decided(remembered, seen(at, **observed)).supervision


def test_first_decision_is_after_900_seconds_then_each_minute() -> None:
    remembered = after(scaled_memory(), 899)
    assert (remembered.task_count, remembered.scale_evaluated_at) == (None, None)
    remembered = after(remembered, 900, lag=IN + 1)
    assert (remembered.task_count, remembered.scale_evaluated_at) == (None, NOON + seconds(900))
    assert after(remembered, 959).task_count is None
    assert after(remembered, 960).task_count == 3


def test_change_empties_the_window_and_blocks_ten_minutes() -> None:
    remembered = after(scaled_memory(), 900)
    assert (remembered.task_count, remembered.lag_since) == (3, NOON + seconds(900))
    remembered = after(remembered, 930)
    assert [each.began_at for each in remembered.jobs[1:]] == [NOON + seconds(930)] * 2
    remembered = after(remembered, 1499)
    assert remembered.task_count == 3
    assert "wait 1 s more" in remembered.task_count_changes[-1].reason
    assert after(remembered, 1560).task_count == 3  # the refused decision empties the window as well
    assert after(remembered, 1920).task_count == 5


def test_planned_handover_empties_the_window() -> None:
    remembered = after(scaled_memory(began=NOON - HOUR), 890)
    assert [each.replaces for each in remembered.jobs] == [None, "job-0"]
    remembered = after(remembered, 900, jobs=running("job-0"))
    assert (remembered.task_count, remembered.lag_since) == (None, NOON + seconds(890))


def test_refusal_empties_the_window_and_replaces_earlier_refusals() -> None:
    remembered = replace(after(scaled_memory(8), 900), task_count=8, planned_count=8, lag_since=None, scaled_at=None)
    for minute in range(1, 30):
        remembered = after(remembered, 900 + 60 * minute)
    assert [(c.before, c.after) for c in remembered.task_count_changes] == [(1, 3), (8, 8)]
    assert remembered.task_count_changes[-1].reason.endswith("8 jobs are the maximum that 'auto_scale' allows")
    assert remembered.lag_since == remembered.task_count_changes[-1].at


def test_delivering_job_refuses_scaling_and_empties_the_window() -> None:
    remembered = memory(started_at=NOON, jobs=(job("a"), job("b", stop_requested_at=NOON, stop_reason="enough")))
    stopped = {"b": replace(running("b")["b"], stop="enough")}
    remembered = after(remembered, 900, jobs={**running("a"), **stopped})
    assert remembered.task_count is None
    assert remembered.task_count_changes[-1].reason.endswith("1 jobs still deliver what they have read")
    assert remembered.lag_since == NOON + seconds(900)


def test_count_is_kept_after_a_gap_until_the_window_fills() -> None:
    at = NOON + seconds(5000)
    before = lags(NOON + seconds(900), IN)
    remembered = after(scaled_memory(3, at - HOUR / 2, task_count=3), 5000, lag=[*before, *lags(at, IN, points=1)])
    assert remembered.task_count == 3
    assert "the window is incomplete: 1 of 21 points" in remembered.task_count_changes[-1].reason
    at += seconds(60 * 7)
    remembered = after(remembered, 5420, lag=[*before, *lags(at, IN, points=15)])
    assert remembered.task_count == 2


@pytest.mark.parametrize(
    ("least", "most", "partitions", "lag", "scaled"),
    [
        (4, 9, 3, IN, None),
        (4, 9, 3, OUT, None),
        (9, 9, 1, IN, None),
        (4, 9, 5, IN, 4),  # by a step of 3
        (1, 9, 3, IN, 1),
        (1, 2, 3, IN, 1),
        (1, 2, 3, OUT, None),
        (1, 9, 3, OUT, None),
    ],
)
def test_scaling_starts_from_the_jobs_that_have_partitions(
    least: int, most: int, partitions: int, lag: int, scaled: int | None
) -> None:
    bounds = AutoScaleSettings(task_count_min=least, task_count_max=most, scale_in_step=3, scale_out_step=3)
    supervise = {"task_count": most, "auto_scale": bounds}
    found = after(scaled_memory(min(most, partitions)), 900, lag, supervise=supervise, partitions=partitions)
    assert (found.task_count, found.scaled_at) == (scaled, None if scaled is None else NOON + seconds(900))
    assert [change.after for change in found.task_count_changes if not change.is_refusal] == [scaled] * bool(scaled)


def test_lag_before_a_reset_is_ignored() -> None:
    remembered = scaled_memory(lag_since=NOON + seconds(900))
    assert after(remembered, 900).task_count is None


@pytest.mark.parametrize(
    ("jobs", "changes"),
    [(1, {"is_suspended": True}), (1, {"partitions": 0}), (0, {})],
    ids=["suspended", "nothing to read", "no job reads"],
)
def test_unread_source_is_not_judged(jobs: int, changes: dict[str, Any]) -> None:
    found = after(scaled_memory(jobs), 900, **changes)
    assert (found.scale_evaluated_at, found.lag_since) == (None, NOON + seconds(900))


def test_scaling_in_ends_a_job_at_once() -> None:
    remembered = memory(started_at=NOON, task_count=3, jobs=(job("a"), job("b"), job("c")))
    at = NOON + seconds(900)
    observed = seen(at, supervise=scaling(), lag=lags(at, IN), jobs=running("a", "b", "c"))
    decision = decided(remembered, observed)
    assert decision.supervision.task_count == 2
    assert [type(action) for action in decision.actions] == [RequestStop]


def test_scaling_out_starts_jobs_at_once() -> None:
    remembered = memory(started_at=NOON, jobs=(job("a"),))
    at = NOON + seconds(900)
    decision = decided(remembered, seen(at, supervise=scaling(), lag=lags(at, OUT), jobs=running("a")))
    assert [type(action) for action in decision.actions] == [StartJob, StartJob]
    assert (decision.wanted, decision.reason) == (3, "as decided by scaling")
