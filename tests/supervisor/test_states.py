"""A supervisor's state follows from its runs and jobs, and old errors expire after recovery."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from airflow_provider_coordination.coordination.job_reports import ErrorEvent
from airflow_provider_coordination.supervisor.settings import EVENTS_KEPT, HealthRules, SuperviseSettings
from airflow_provider_coordination.supervisor.supervision import DetailedState, Health, SupervisorState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNING, SUSPENDED = DetailedState.RUNNING, DetailedState.SUSPENDED


def error(number: int = 0, *, of_stream: bool = False) -> ErrorEvent:
    return ErrorEvent(at=NOON, error_class="Boom", message=str(number), is_stream_error=of_stream)


def runs(health: Health, outcomes: str, *, of_stream: bool = False, steady: DetailedState = RUNNING) -> Health:
    """The health after these runs: `+` is a good one, `-` a failed one."""
    for outcome in outcomes:
        if outcome == "-":
            health = health.with_error(error(of_stream=of_stream))
        health = health.run_ended(succeeded=outcome == "+", steady=steady)
    return health


def jobs(health: Health, outcomes: str) -> Health:
    """The health after these jobs, and a good run after each."""
    for outcome in outcomes:
        health = health.job_ended(succeeded=outcome == "+").run_ended(succeeded=True, steady=RUNNING)
    return health


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ("", DetailedState.PENDING),
        ("+", RUNNING),
        ("--", DetailedState.PENDING),
        ("---", DetailedState.UNHEALTHY_SUPERVISOR),
        ("+--", RUNNING),
        ("+---", DetailedState.UNHEALTHY_SUPERVISOR),
        ("---++", DetailedState.UNHEALTHY_SUPERVISOR),
        ("---+++", RUNNING),
        ("---++-+++", RUNNING),
        ("--+--", RUNNING),
    ],
)
def test_three_runs_in_a_row_change_health(outcomes: str, state: DetailedState) -> None:
    assert runs(Health(), outcomes).state is state


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [("", DetailedState.PENDING), ("--", DetailedState.PENDING), ("+", RUNNING), ("---+++", RUNNING), ("+-", RUNNING)],
)
def test_successful_run_is_never_pending_again(outcomes: str, state: DetailedState) -> None:
    assert runs(Health(), outcomes).with_state(DetailedState.PENDING).state is state


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [("--", RUNNING), ("---", DetailedState.UNHEALTHY_TASKS), ("---++", DetailedState.UNHEALTHY_TASKS),
     ("---+++", RUNNING), ("--+--", RUNNING)],
)  # fmt: skip
def test_three_jobs_in_a_row_change_health(outcomes: str, state: DetailedState) -> None:
    assert jobs(Health(), outcomes).state is state


def test_stream_trouble_does_not_revive_earlier_job_failures() -> None:
    """In Druid they do, for as long as three tasks take: what was ever unhealthy is never forgotten there."""
    recovered = jobs(Health(), "---+++")
    assert recovered.state is RUNNING
    away = runs(recovered.job_ended(succeeded=False), "---", of_stream=True)
    assert away.state is DetailedState.LOST_CONTACT_WITH_STREAM
    assert runs(away, "+++").state is RUNNING


def test_trouble_of_runs_and_jobs_ends_with_both() -> None:
    both = runs(jobs(Health(), "---"), "---")
    assert both.state is DetailedState.UNHEALTHY_SUPERVISOR
    connected = runs(both, "+++")
    assert connected.state is DetailedState.UNHEALTHY_TASKS
    assert jobs(connected, "+++").state is RUNNING


def test_suspended_supervisor_is_unhealthy_if_its_runs_fail() -> None:
    suspended = runs(Health(), "+", steady=SUSPENDED)
    assert suspended.state is SUSPENDED
    assert runs(suspended, "---", steady=SUSPENDED).state is DetailedState.UNHEALTHY_SUPERVISOR


def test_initial_states_show_until_a_run_succeeds() -> None:
    fresh = Health().with_state(DetailedState.CONNECTING_TO_STREAM)
    assert fresh.state is DetailedState.CONNECTING_TO_STREAM
    assert fresh.state.basic is SupervisorState.RUNNING
    assert fresh.with_state(RUNNING).state is DetailedState.CONNECTING_TO_STREAM  # no run has succeeded yet
    assert runs(fresh, "+").with_state(DetailedState.CREATING_TASKS).state is RUNNING


def test_stopping_supervisor_stays_so_until_terminated() -> None:
    stopping = runs(Health(), "+").with_state(DetailedState.STOPPING)
    for proposed in (RUNNING, SUSPENDED, DetailedState.CREATING_TASKS):
        assert stopping.with_state(proposed).state is DetailedState.STOPPING
    assert runs(stopping, "---").state is DetailedState.STOPPING
    assert stopping.with_state(DetailedState.TERMINATED).state is DetailedState.TERMINATED


def test_restarted_supervisor_is_pending_and_keeps_its_errors() -> None:
    refresh = runs(Health(), "---").with_state(DetailedState.TERMINATED).restarted()
    assert refresh == Health(errors=(error(),) * 3)


def test_latest_errors_are_kept() -> None:
    health = Health()
    for number in range(EVENTS_KEPT + 5):
        health = health.with_error(error(number))
    assert [event.message for event in health.errors] == [str(n) for n in range(5, EVENTS_KEPT + 5)]


def test_number_of_kept_errors_is_a_setting() -> None:
    health = Health().under(HealthRules(errors_kept=2))
    for number in range(5):
        health = health.with_error(error(number))
    assert [event.message for event in health.errors] == ["3", "4"]
    assert [event.message for event in health.under(HealthRules(errors_kept=1)).errors] == ["4"]


@pytest.mark.parametrize(
    ("rules", "outcomes", "state"),
    [
        (HealthRules(unhealthy_after=1), "-", DetailedState.UNHEALTHY_SUPERVISOR),
        (HealthRules(unhealthy_after=5), "+----", RUNNING),
        (HealthRules(unhealthy_after=5), "+-----", DetailedState.UNHEALTHY_SUPERVISOR),
        (HealthRules(healthy_after=1), "---+", RUNNING),
        (HealthRules(healthy_after=4), "---+++", DetailedState.UNHEALTHY_SUPERVISOR),
    ],
)
def test_thresholds_of_runs_are_settings(rules: HealthRules, outcomes: str, state: DetailedState) -> None:
    assert runs(Health().under(rules), outcomes).state is state


@pytest.mark.parametrize(
    ("rules", "outcomes", "state"),
    [
        (HealthRules(jobs_unhealthy_after=1), "-", DetailedState.UNHEALTHY_TASKS),
        (HealthRules(jobs_unhealthy_after=4), "---", RUNNING),
        (HealthRules(jobs_healthy_after=1), "---+", RUNNING),
        (HealthRules(jobs_healthy_after=4), "---+++", DetailedState.UNHEALTHY_TASKS),
    ],
)
def test_thresholds_of_jobs_are_settings(rules: HealthRules, outcomes: str, state: DetailedState) -> None:
    assert jobs(Health().under(rules), outcomes).state is state


def test_spec_sets_the_rules() -> None:
    said = SuperviseSettings(
        unhealthiness_threshold=1,
        healthiness_threshold=2,
        task_unhealthiness_threshold=4,
        task_healthiness_threshold=5,
        max_stored_exception_events=6,
    )
    assert said.health_rules == HealthRules(
        unhealthy_after=1, healthy_after=2, jobs_unhealthy_after=4, jobs_healthy_after=5, errors_kept=6
    )
    assert SuperviseSettings().health_rules == HealthRules()


def test_restarted_supervisor_keeps_its_rules() -> None:
    rules = HealthRules(unhealthy_after=1)
    assert Health().under(rules).restarted().rules == rules


def test_health_survives_being_written() -> None:
    ruled = Health(rules=HealthRules(healthy_after=9))
    health = replace(runs(jobs(ruled, "--"), "+---", of_stream=True), successful_jobs=7)
    assert Health.from_mapping(health.to_mapping()) == health
    assert Health.from_mapping({"state": "of a newer version", "errors": [{}], "failed_runs": True}) == Health()
