"""The verbs of a supervisor take effect, or are refused with one clear sentence and no loss."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    PartitionUpdateError,
    SourceError,
    StoreUnavailableError,
    SupervisionError,
    SupervisorNotFoundError,
)
from airflow_provider_coordination.coordination.json_values import json_of
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.source_claim import SourceClaim, claim
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, partition_key
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.supervisor.operations import (
    SupervisorVerbs,
    supervised_sources,
)
from airflow_provider_coordination.supervisor.reading import existing_status, read_history, read_spec
from airflow_provider_coordination.supervisor.spec import SpecChange
from airflow_provider_coordination.supervisor.verbs import NOT_ATTEMPTED, UNCONFIRMED, apply_to_all, verbs_for
from tests.supervisor.source_simulation import SourceSimulation
from tests.supervisor.specs import SPEC, spec_with
from tests.support.batches import a_batch


def items_spec(**changes: Any) -> dict[str, Any]:
    """Return a spec of a source that can be reset without asking it."""
    return {
        "version": 1,
        "source": "clicks",
        "reads": {"s3": {"paths": "s3://clicks/in", "format": "json", "aws_conn_id": None}},
        "writes": [{"parquet": {"path": "/data/lake/clicks"}}],
        "supervise": {"start_delay": 0},
        **changes,
    }


@pytest.fixture
def simulation() -> SourceSimulation:
    return SourceSimulation("S0", "S1")


def verbs(simulation: SourceSimulation, by: str = "ann", reason: str = "on call") -> SupervisorVerbs:
    return SupervisorVerbs(simulation.coordinator(f"host:{by}"), by=by, reason=reason)


def status(simulation: SourceSimulation) -> dict[str, Any]:
    return json_of(existing_status(simulation.view))


def carry_out(simulation: SourceSimulation, verb: str, *args: Any) -> None:
    connections = {"connections": AirflowConnections()} if verb == "reset" else {}
    getattr(verbs(simulation), verb)(*args, **connections)


def refused(simulation: SourceSimulation, verb: str, *args: Any) -> str:
    before = simulation.store.get()
    with pytest.raises(CoordinationError) as caught:
        carry_out(simulation, verb, *args)
    assert simulation.store.get() == before, "what was refused has changed something"
    return str(caught.value)


# Submit


def test_first_version_has_its_author_and_reason(simulation: SourceSimulation) -> None:
    done = verbs(simulation).submit(SPEC)
    assert (done.version.version, done.change) == (1, SpecChange.JOBS)
    assert (done.version.by, done.version.reason) == ("ann", "on call")
    assert simulation.supervision().spec_version == 1


@pytest.mark.parametrize(
    ("path", "value", "change"),
    [
        ("context.description", "each click", SpecChange.COSMETIC),
        ("supervise.task_count", 3, SpecChange.SUPERVISION),
        ("schema", "id STRING", SpecChange.JOBS),
    ],
)
def test_submit_reports_the_changes_of_a_version(
    simulation: SourceSimulation, path: str, value: Any, change: SpecChange
) -> None:
    verbs(simulation).submit(SPEC)
    done = verbs(simulation, "bob").submit(spec_with(path, value))
    assert (done.version.version, done.change, bool(done.consequence)) == (2, change, True)


@pytest.mark.parametrize(
    ("reads", "what"),
    [
        ({"kinesis": {"streams": "orders", "aws_conn_id": None}}, "'clicks'"),
        ({"s3": {"paths": "s3://clicks/in", "format": "json", "aws_conn_id": None}}, "kind 'kinesis'"),
    ],
)
@pytest.mark.parametrize("is_terminated", [False, True])
def test_spec_that_abandons_partitions_is_refused(
    simulation: SourceSimulation, reads: dict[str, Any], what: str, is_terminated: bool
) -> None:
    verbs(simulation).submit(SPEC)
    verbs(simulation).submit(spec_with("reads", reads))
    verbs(simulation).submit(SPEC)
    simulation.stream.discover_partitions()
    if is_terminated:
        verbs(simulation).terminate()
    error = refused(simulation, "submit", spec_with("reads", reads))
    assert error.startswith(
        f"spec: field 'reads' no longer names {what}, which source 'clicks' has read. Its partitions"
    )
    assert "give the spec another 'source'" in error
    assert "'airflow-coordination supervisor reset clicks --forget'" in error
    assert ("supervisor suspend clicks --reason REASON'" in error) is not is_terminated


def jdbc(**reads: Any) -> dict[str, Any]:
    return {"jdbc": {"table": "orders", "column": "id", **reads}}


def followed(table: str) -> dict[str, Any]:
    return {"dynamodb": {"table": table, "follow": True}}


def opensearch(indices: Any, **reads: Any) -> dict[str, Any]:
    return {"opensearch": {"indices": indices, **reads}}


def s3(*paths: str, **reads: Any) -> dict[str, Any]:
    return {"s3": {"paths": list(paths), "format": "json", "aws_conn_id": None, **reads}}


@pytest.mark.parametrize(
    ("before", "now", "left", "warning"),
    [
        (s3("s3://inbox/clicks"), s3("s3://out/clicks"), "location 's3://inbox'", ""),
        (
            s3("s3://inbox/clicks"),
            s3("s3a://inbox/clicks"),
            "",
            "paths ['s3a://inbox/clicks'] here and ['s3://inbox/clicks']",
        ),
        (s3("s3://inbox/clicks"), s3("s3://inbox/", include="*.json"), "", "include ['*.json'] here and nothing there"),
        (s3("s3://inbox/clicks"), s3("s3://inbox/clicks", max_objects=5), "", ""),
        (jdbc(), jdbc(table="returns"), "table 'orders'", ""),
        (jdbc(), jdbc(column="at"), "column 'id'", ""),
        (jdbc(), jdbc(jdbc_conn_id="replica"), "", "jdbc_conn_id 'replica' here"),
        ({"dynamodb": {"table": "orders"}}, {"dynamodb": {"table": "returns"}}, "table 'orders'", ""),
        ({"dynamodb": {"table": "orders"}}, followed("orders"), "kind 'dynamodb'", ""),
        (followed("orders"), {"dynamodb": {"table": "orders"}}, "kind 'dynamodb_streams'", ""),
        (followed("orders"), {"dynamodb_streams": {"tables": "orders"}}, "the changes with the items before them", ""),
        (opensearch("logs"), opensearch("events"), "index 'logs'", ""),
        (opensearch("logs-2026"), opensearch("logs-*"), "", "indices ['logs-*'] here"),
        (opensearch("logs-*"), opensearch("logs-2026"), "", "indices ['logs-2026'] here"),
    ],
)
@pytest.mark.parametrize("has_state_only", [False, True])
def test_another_location_is_refused_and_another_selection_warned(
    simulation: SourceSimulation,
    before: dict[str, Any],
    now: dict[str, Any],
    left: str,
    warning: str,
    has_state_only: bool,
) -> None:
    verbs(simulation).submit(items_spec(reads=before))
    state = Page({} if has_state_only else {"S0": {}}, state={"scans": 1})
    simulation.coordinator("supplier").supply(lambda _: [state])
    if left:
        assert f"no longer names {left}, which" in refused(simulation, "submit", items_spec(reads=now))
        return
    warnings = verbs(simulation).submit(items_spec(reads=now)).warnings
    assert [warning in each for each in warnings] == ([True] if warning else [])


def test_first_spec_must_read_the_claimed_location(simulation: SourceSimulation) -> None:
    location = {"paths": ["s3://out/clicks"]}
    claim(
        simulation.view,
        SourceClaim(dag_id="a", task_id="t", claimed_at=simulation.clock.now(), kind="s3", location=location),
    )
    simulation.stream.discover_partitions()
    assert "no longer names location 's3://out', which source" in refused(simulation, "submit", items_spec())


def test_first_spec_must_name_the_stream_of_its_partitions(simulation: SourceSimulation) -> None:
    shard(simulation, "orders")
    error = refused(simulation, "submit", SPEC)
    assert "no longer names 'orders', which source" in error and "'airflow-coordination reset clicks --forget'" in error


def test_stream_without_unfinished_partitions_may_be_left(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(spec_with("reads.kinesis.streams", ["clicks", "orders"]))
    shard(simulation, "clicks")
    orders = shard(simulation, "orders")
    assert "no longer names 'orders', which source" in refused(simulation, "submit", SPEC)
    simulation.complete(orders)
    assert verbs(simulation).submit(SPEC).version.version == 2


def shard(simulation: SourceSimulation, stream: str, **progress: Any) -> str:
    key = partition_key(stream, 1767268800, "shardId-000000000000")
    state = ShardProgress(
        stream=stream, shard_id="shardId-000000000000", parent_shard_ids=(), starting_hash_key="0", ending_hash_key="9"
    )
    simulation.coordinator("sync").create_partitions({key: replace(state, **progress).to_mapping()})
    return key


def test_spec_may_read_an_additional_stream(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(SPEC)
    simulation.stream.discover_partitions()
    assert verbs(simulation).submit(spec_with("reads.kinesis.streams", ["clicks", "orders"])).version.version == 2


@pytest.mark.parametrize(
    ("path", "value", "warning"),
    [
        ("transform", "tests.supervisor.specs:clean", None),
        (
            "transform",
            "tests.supervisor.specs.deeper:clean",
            "module 'tests.supervisor.specs.deeper' is not found here",
        ),
        ("transform", "no_such_module:clean", "module 'no_such_module' is not found here: make sure that jobs find it"),
        ("supervise.auto_scale", {"task_count_min": 1, "task_count_max": 2}, None),
        (
            "supervise.auto_scale",
            {"task_count_min": 3, "task_count_max": 5},
            "is 2, outside of 'auto_scale', which allo",
        ),
    ],
)
def test_likely_mistake_in_a_spec_is_a_warning(
    simulation: SourceSimulation, path: str, value: Any, warning: str | None
) -> None:
    spec = spec_with(path, value)
    if path != "transform":
        spec["transform"] = None
    warnings = verbs(simulation).submit(spec).warnings
    assert len(warnings) == (warning is not None)
    assert all(warning is not None and warning in each for each in warnings)


@pytest.mark.parametrize(
    ("theirs", "relation"),
    [
        ("/data/lake/clicks/", "also written by the supervisor of source 'other'"),
        ("/data/lake", "below '/data/lake', which is written by"),
        ("/data/lake/clicks/new", "above '/data/lake/clicks/new', which is written by"),
        ("/data/lake/clicks_new", None),
    ],
)
def test_path_of_another_supervisor_is_a_warning(
    simulation: SourceSimulation, theirs: str, relation: str | None
) -> None:
    other = SourceCoordinator(simulation.backend, "other", owner="host:bob", prefix=simulation.prefix)
    other.initialize()
    SupervisorVerbs(other).submit(items_spec(source="other", writes=[{"parquet": {"path": theirs}}]))
    warnings = verbs(simulation).submit(items_spec()).warnings
    assert [relation in each for each in warnings if relation] == [True] * len(warnings)
    assert bool(warnings) == (relation is not None)


def test_unchanged_spec_makes_no_version(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(SPEC)
    again = verbs(simulation, "bob").submit(SPEC)
    assert (again.version.version, again.version.by, again.change) == (1, "ann", SpecChange.NONE)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (spec_with("supervise.task_count", 0), "field 'supervise.task_count' must be from 1 .*suspend the supervisor"),
        (spec_with("version", 2), "field 'version' is 2, but this package reads versions up to 1; upgrade"),
        (spec_with("source", "orders"), "field 'source' is 'orders', but the spec was submitted for 'clicks'"),
        (["no", "object"], "spec"),
    ],
)
def test_wrong_spec_is_refused_and_the_previous_one_stays(
    simulation: SourceSimulation, spec: Any, message: str
) -> None:
    verbs(simulation).submit(SPEC)
    with pytest.raises(ConfigurationError, match=message):
        verbs(simulation).submit(spec)
    assert simulation.supervision().spec_version == 1


def test_later_submit_on_the_same_version_is_refused_and_repeatable(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(SPEC)
    verbs(simulation, "bob").submit(spec_with("schema", "id STRING"), replacing=1)
    with pytest.raises(SupervisionError, match=r"version 1 of the spec.* was replaced by bob: version 2 is current"):
        verbs(simulation).submit(spec_with("supervise.task_count", 3), replacing=1)
    assert verbs(simulation).submit(spec_with("supervise.task_count", 3), replacing=2).version.version == 3


def test_concurrent_submits_become_versions_in_order(tmp_path: Path) -> None:
    store = open_store(StoreSettings.from_url(f"sqlite:///{tmp_path}/s.db"))
    simulation = SourceSimulation("S0", store=store)
    names = [f"person-{number}" for number in range(6)]
    everybody = [verbs(simulation, name) for name in names]
    begin = threading.Barrier(len(names))

    def submit(number: int) -> None:
        begin.wait()
        everybody[number].submit(spec_with("context.description", names[number]))

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    versions = simulation.store.history()
    assert [version.version for version in versions] == [6, 5, 4, 3, 2, 1]
    assert sorted(version.by for version in versions) == names
    assert all(version.spec and version.spec["context"]["description"] == version.by for version in versions)
    store.close()


def test_hidden_secrets_are_submitted_as_stored(simulation: SourceSimulation) -> None:
    key = "spark.hadoop.fs.s3a.secret.key"
    verbs(simulation).submit(spec_with("tuning.spark.conf", {key: "opensesame"}))
    shown = read_spec(simulation.view).spec
    assert "opensesame" not in str(shown)
    shown["context"] = {"description": "edited"}
    done = verbs(simulation).submit(shown)
    assert done.change is SpecChange.COSMETIC
    assert done.version.spec is not None and done.version.spec["tuning"]["spark"]["conf"][key] == "opensesame"
    shown["tuning"]["spark"]["conf"] = {"spark.other.password": shown["tuning"]["spark"]["conf"][key]}
    with pytest.raises(ConfigurationError, match=r"field 'tuning.spark.conf.spark.other.password' is hidden"):
        verbs(simulation).submit(shown)


# Suspend and resume


def test_second_suspension_is_refused_and_the_first_stays(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(SPEC)
    verbs(simulation, "ann", "the sink is full").suspend()
    assert "is already suspended by ann since 2026-01-01T00:00:00Z: the sink is full" in refused(simulation, "suspend")
    assert verbs(simulation, "bob").resume().by == "ann"


def test_unsuspended_supervisor_cannot_be_resumed(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(SPEC)
    assert "is not suspended" in refused(simulation, "resume")


def test_unseen_suspension_is_not_resumed(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(SPEC)
    seen = verbs(simulation).suspend()
    verbs(simulation).resume()
    simulation.clock.advance(60)
    verbs(simulation, "bob").suspend()
    with pytest.raises(PartitionUpdateError, match="suspended again"):
        verbs(simulation).resume(seen.since)
    assert status(simulation)["suspended"]["by"] == "bob"


def test_suspend_ends_jobs_and_resume_starts_them(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(items_spec())
    simulation.go_on(30)
    assert len(simulation.running) == 1
    verbs(simulation).suspend()
    simulation.go_on(30)
    assert (simulation.running, status(simulation)["state"]) == ([], "SUSPENDED")
    verbs(simulation).resume()
    simulation.go_on(30)
    assert (len(simulation.running), status(simulation)["state"]) == (1, "RUNNING")


# Reset


def test_reset_rereads_everything_under_any_job(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(items_spec())
    simulation.go_on(30)
    simulation.complete("S1")
    done = verbs(simulation).reset(connections=AirflowConnections())
    assert sorted((each.partition_key, each.action, each.error) for each in done.outcomes) == [
        ("S0", "reset", ""),
        ("S1", "reset", ""),
    ]
    assert simulation.view.count_by_status()[PartitionStatus.UNASSIGNED] == 2
    assert simulation.supervision().lag_since == simulation.clock.now()


def test_partitions_are_reset_to_individual_positions(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(items_spec())
    simulation.go_on(30)
    done = verbs(simulation).reset(positions={"S1": "earliest"}, connections=AirflowConnections())
    assert [each.partition_key for each in done.outcomes] == ["S1"]


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ({"S1": "earliest", "S9": "earliest"}, "has no partition 'S9'"),
        ({"S0": "earliest", "S1": "42"}, "S1"),
        ({"S0": "earliest", "S1": "2999-01-01T00:00:00Z"}, "lies in the future"),
        ({}, "'positions' is empty"),
    ],
)
def test_wrong_position_prevents_the_whole_reset(
    simulation: SourceSimulation, positions: Mapping[str, str], message: str
) -> None:
    verbs(simulation).submit(items_spec())
    simulation.go_on(30)
    before = [simulation.view.get(key) for key in ("S0", "S1")]
    with pytest.raises(CoordinationError, match=message):
        verbs(simulation).reset(positions=positions, connections=AirflowConnections())
    assert [simulation.view.get(key) for key in ("S0", "S1")] == before


def test_source_without_partitions_has_nothing_to_reset(simulation: SourceSimulation) -> None:
    with pytest.raises(SupervisionError, match="has no partitions to reset yet"):
        several(simulation, "a")["a"].reset(connections=AirflowConnections())


def test_terminated_supervisor_refuses_a_reset_with_its_remedy(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(items_spec())
    verbs(simulation).terminate()
    assert "cannot be reset: it was terminated at" in refused(simulation, "reset")
    assert "submit a spec to start it again" in refused(simulation, "reset")


def test_suspended_supervisor_can_be_reset(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(items_spec())
    simulation.go_on(30)
    verbs(simulation).suspend()
    assert [each.error for each in verbs(simulation).reset(connections=AirflowConnections()).outcomes] == ["", ""]


# Forget


@pytest.mark.parametrize("ends_by", ["suspend", "terminate"])
def test_stopped_supervisor_may_forget_and_read_elsewhere(simulation: SourceSimulation, ends_by: str) -> None:
    verbs(simulation).submit(SPEC)
    simulation.go_on(30)
    getattr(verbs(simulation), ends_by)()
    simulation.go_on(60)
    done = verbs(simulation).forget()
    assert sorted((each.partition_key, each.action, each.error) for each in done.outcomes) == [
        ("S0", "removed", ""),
        ("S1", "removed", ""),
    ]
    assert simulation.view.is_empty()
    assert verbs(simulation).submit(spec_with("reads.kinesis.streams", "orders")).change is SpecChange.JOBS
    if ends_by == "suspend":
        verbs(simulation).resume()
    simulation.go_on(120)
    assert len(simulation.read_by()) == 2 and all(simulation.read_by().values())


@pytest.mark.parametrize("ends_by", [None, "suspend", "terminate"])
def test_supervisor_with_running_jobs_forgets_nothing(simulation: SourceSimulation, ends_by: str | None) -> None:
    verbs(simulation).submit(SPEC)
    simulation.go_on(30)
    if ends_by is not None:
        getattr(verbs(simulation), ends_by)()
    error = refused(simulation, "forget")
    assert ("cannot forget what is leased: 'S0', 'S1'" if ends_by == "suspend" else "while jobs may work") in error
    assert all(simulation.read_by().values())


def test_batches_that_are_not_acknowledged_are_not_forgotten(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(SPEC)
    key = shard(simulation, "clicks", landed=(a_batch("1", "2"),))
    verbs(simulation).suspend()
    assert f"1 partitions with batches that are not acknowledged: {key!r}" in refused(simulation, "forget")
    assert simulation.view.get(key) is not None


# Hand over, terminate


def test_handover_replaces_every_job(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(items_spec())
    simulation.go_on(30)
    [before] = simulation.running
    verbs(simulation).hand_over()
    simulation.go_on(60)
    [after] = simulation.running
    assert after.owner != before.owner
    assert status(simulation)["needs_turn"] is False


def test_second_terminate_is_refused(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(SPEC)
    verbs(simulation, "bob", "moved").terminate()
    assert "was already terminated at 2026-01-01T00:00:00" in refused(simulation, "terminate")
    assert [version.is_termination for version in simulation.store.history()] == [True, False]
    assert status(simulation)["terminated"]["reason"] == "moved"


@pytest.mark.parametrize("verb", ["suspend", "resume", "reset", "hand_over"])
def test_terminated_supervisor_accepts_only_a_new_spec(simulation: SourceSimulation, verb: str) -> None:
    verbs(simulation).submit(SPEC)
    verbs(simulation).terminate()
    assert "terminated" in refused(simulation, verb)
    assert verbs(simulation).submit(SPEC).version.version == 3
    assert status(simulation)["terminated"] is None


@pytest.mark.parametrize("verb", ["suspend", "resume", "reset", "forget", "hand_over", "terminate"])
def test_unsubmitted_supervisor_is_not_found(simulation: SourceSimulation, verb: str) -> None:
    with pytest.raises(SupervisorNotFoundError, match="source 'clicks' has no supervisor; check the name, or submit"):
        carry_out(simulation, verb)
    assert simulation.store.get() is None


# Specs


def test_history_has_author_reason_and_changes(simulation: SourceSimulation) -> None:
    verbs(simulation, "ann", "first").submit(SPEC)
    verbs(simulation, "bob", "more jobs").submit(spec_with("supervise.task_count", 4))
    verbs(simulation, "ann", "moved").terminate()
    found = read_history(simulation.view, 2)
    assert [(each.version, each.by, each.reason, each.change) for each in found] == [
        (3, "ann", "moved", None),
        (2, "bob", "more jobs", "SUPERVISION"),
    ]
    assert found[0].is_termination and found[0].spec is None
    assert [each.change for each in read_history(simulation.view, 50)] == [None, "SUPERVISION", "JOBS"]


def test_shown_spec_has_every_default(simulation: SourceSimulation) -> None:
    verbs(simulation).submit(SPEC)
    found = read_spec(simulation.view)
    assert found.spec == SPEC and found.problem == ""
    assert found.effective is not None and found.effective["supervise"]["completion_timeout"]
    with pytest.raises(SupervisorNotFoundError, match="has no version 7 of its spec; the latest version is 1"):
        read_spec(simulation.view, 7)


def test_stored_spec_of_a_newer_version_shows_its_error(simulation: SourceSimulation) -> None:
    simulation.store.submit(spec_with("version", 2))
    found = read_spec(simulation.view)
    assert found.effective is None and "this package reads versions up to 1" in found.problem


# All of them


def several(simulation: SourceSimulation, *sources: str) -> dict[str, SupervisorVerbs]:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator

    made = {}
    for source in sources:
        coordinator = SourceCoordinator(simulation.backend, source, "host:ann", prefix="test", clock=simulation.clock)
        coordinator.initialize()
        made[source] = SupervisorVerbs(coordinator, by="ann", reason="maintenance")
        made[source].submit(items_spec(source=source))
    return made


def test_verb_for_all_reports_unsuitable_supervisors(simulation: SourceSimulation) -> None:
    made = several(simulation, "a", "b", "c")
    made["b"].suspend()
    made["c"].terminate()
    done = {each.source: each for each in apply_to_all(list(made), made.__getitem__, SupervisorVerbs.suspend)}
    assert [done[source].is_done for source in "abc"] == [True, False, False]
    assert "suspended by ann" in done["b"].detail and "terminated" in done["c"].detail
    again = list(apply_to_all(list(made), made.__getitem__, SupervisorVerbs.suspend))
    assert not any(each.is_done for each in again)


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (SourceError("no route to 10.0.0.7"), "source 'b' is unavailable (SourceError); see the log for details"),
        (ConfigurationError("field 'to' is wrong"), "field 'to' is wrong"),
        (PartitionUpdateError("2 of 3 partitions could not be reset"), "2 of 3 partitions could not be reset"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_verb_for_all_continues_after_a_failure(simulation: SourceSimulation, error: Exception, detail: str) -> None:
    made = several(simulation, "a", "b", "c")

    def verb(of: SupervisorVerbs) -> object:
        if of is made["b"]:
            raise error
        return of.hand_over()

    done = list(apply_to_all(list(made), made.__getitem__, verb))
    assert [(each.is_done, each.has_failed, each.detail) for each in done] == [
        (True, False, ""),
        (False, True, detail),
        (True, False, ""),
    ]


def test_supervised_sources_are_those_with_a_spec(simulation: SourceSimulation) -> None:
    several(simulation, "b", "a")
    simulation.view.suspensions.suspend("ann", "a source without a supervisor")
    assert supervised_sources(simulation.backend, "test") == ["a", "b"]
    assert supervised_sources(simulation.backend, None) == []


def test_store_outage_midway_leaves_a_result_for_each(simulation: SourceSimulation) -> None:
    made = several(simulation, "a", "b", "c")

    def verb(of: SupervisorVerbs) -> object:
        if of is not made["a"]:
            raise StoreUnavailableError("gone")
        return of.suspend()

    done = list(apply_to_all(list(made), made.__getitem__, verb))
    assert [(each.is_done, each.detail) for each in done] == [(True, ""), (False, UNCONFIRMED), (False, NOT_ATTEMPTED)]
    assert [each.has_failed for each in done] == [False, True, True]
    with pytest.raises(StoreUnavailableError):
        list(apply_to_all(["b"], made.__getitem__, verb))


def test_verbs_apply_by_state(simulation: SourceSimulation) -> None:
    def applicable() -> list[str]:
        return verbs_for(existing_status(simulation.view))

    simulation.store.submit(spec_with("supervise.start_delay", 0))
    assert applicable() == ["submit", "suspend", "reset", "terminate"]
    simulation.turn()
    assert applicable() == ["submit", "suspend", "handover", "reset", "terminate"]
    verbs(simulation).suspend()
    assert "resume" in applicable() and "suspend" not in applicable()
    verbs(simulation).terminate()
    assert applicable() == ["submit"]
