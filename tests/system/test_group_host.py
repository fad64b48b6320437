"""Three sources share a Spark application that is killed: nothing is lost or doubled, and none stops another."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from airflow_provider_coordination.sources.reset import Resets
from airflow_provider_coordination.sources.reset_targets import EARLIEST, parse_target
from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION, EXIT_SUCCESS
from airflow_provider_coordination.spark.settings import IngestSettings
from demo.local_kinesis import LocalKinesis
from tests.support.group_runs import GroupRun
from tests.support.spark_job import Pipeline
from tests.support.waiting import until


@pytest.fixture
def group(java: str, tmp_path: Path) -> Iterator[GroupRun]:
    made = GroupRun(tmp_path, f"sqlite:///{tmp_path}/coordination.db")
    yield made
    made.kill()


@pytest.fixture
def make_member(
    kinesis: LocalKinesis, kinesis_stream: Callable[[int], str], group: GroupRun, tmp_path: Path
) -> Callable[[str], Pipeline]:
    def make(source: str) -> Pipeline:
        folder = tmp_path / source
        folder.mkdir()
        member = Pipeline(kinesis, kinesis_stream(2), folder, group.url, source=source)
        member.sync()
        return member

    return make


def settings_of(member: Pipeline, **changes: object) -> IngestSettings:
    return member.settings(until_caught_up=False, round_duration=2, **changes)


def while_running(group: GroupRun, condition: Callable[[], bool]) -> None:
    def logs() -> str:
        return "\n".join(host.output for host in group.hosts)

    def holds() -> bool:
        assert group.hosts[-1].process.poll() is None, logs()
        return condition()

    until(holds, logs)


def has_all(member: Pipeline) -> bool:
    return member.delivered().keys() >= set(member.sent)


def test_killed_host_with_a_failing_and_a_reset_member(group: GroupRun, make_member: Callable[[str], Pipeline]) -> None:
    clicks, views, broken = (make_member(source) for source in ("clicks", "views", "broken"))
    running = {clicks.source: settings_of(clicks), views.source: settings_of(views)}
    for member in (clicks, views, broken):
        member.send(10)
    failing = settings_of(broken, transform="no_such_module:clean")
    for settings in (*running.values(), failing):
        group.request(settings)
    while_running(group, lambda: has_all(clicks) and has_all(views) and group.outcome(failing) is not None)
    assert len(group.hosts) == 1

    # One fails again and again, and one is reset; the host stays, and both others go on.
    assert "no_such_module" in fail_again(group, broken, transform="no_such_module:clean")
    assert "'clicks' of the same group writes as well" in fail_again(group, broken, output=str(clicks.output))
    assert len(group.hosts) == 1
    read_twice = list(views.sent)
    reset(views)
    while_running(group, lambda: min((views.delivered()[event] for event in read_twice), default=0) == 2)
    assert not group.outcome(running[clicks.source])

    # The host dies in the middle of its work.
    for member in (clicks, views):
        member.send(10)
    group.hosts[0].wait_for("landed=")
    for member in (clicks, views):
        member.send(10)
    group.hosts[0].kill()
    for member in (clicks, views):
        member.send(10)
    again = {member.source: settings_of(member) for member in (clicks, views)}
    for member in (clicks, views):
        until(lambda owner=running[member.source]: group.outcome(owner))
        if member is clicks:  # the host's own item may expire a little later: a supervisor looks again at its next turn
            until(lambda: group.requests.host() is None)
        group.request(again[member.source])
    assert len(group.hosts) == 2, "both members share the second host"
    while_running(group, lambda: has_all(clicks) and has_all(views))

    # Its driver is asked to end: every member delivers, and gives back its leases.
    group.hosts[1].driver().send_signal(signal.SIGTERM)
    assert group.hosts[1].wait() == 0, group.hosts[1].output
    for member in (clicks, views):
        outcome = group.outcome(again[member.source])
        assert outcome is not None and outcome.exit_code == EXIT_SUCCESS, group.hosts[1].output
        assert outcome.summary["stopped_because"] == "it was stopped"
        assert {partition.owner for partition in member.coordinator().view.partitions()} == {None}
    clicks.assert_exactly_once()
    assert views.delivered() == Counter(views.sent) + Counter(read_twice)
    assert not broken.delivered()
    assert "[clicks] round" in group.hosts[0].output and "[views] round" in group.hosts[0].output
    assert "coordination-summary" not in group.hosts[0].output


def fail_again(group: GroupRun, member: Pipeline, **changes: object) -> str:
    """Request a job that cannot work; return its error."""
    failing = settings_of(member, **changes)
    group.request(failing)
    while_running(group, lambda: group.outcome(failing) is not None)
    outcome = group.outcome(failing)
    assert outcome is not None and outcome.exit_code == EXIT_CONFIGURATION
    return outcome.error or ""


def reset(member: Pipeline) -> None:
    """Let a member read everything again."""
    resets = Resets(AcknowledgmentSets(member.coordinator("person"), SourceBatches()))
    target = parse_target(EARLIEST, datetime.now(UTC))
    plan = resets.plan_group(member.stream, target, lambda kind: StreamService(member.client))
    steps = list(resets.apply(plan, only_if_unchanged=False))
    assert steps and not [became for _, became in steps if isinstance(became, Exception)]
