"""The operator ends leases by hand: by partition and by owner; invalid requests are refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import AWAITING_SUFFIX, Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_KEY
from airflow_provider_coordination.coordination.workers import new_owner
from airflow_provider_coordination.operators.partitions import ReleasePartitionsOperator, release_seen

MINUTE = timedelta(minutes=1)
RUN = "manual__2026-01-31T00:00:00+00:00"


def release(**arguments: Any) -> ReleasePartitionsOperator:
    return ReleasePartitionsOperator(task_id="release", source="clicks", **arguments)


def held(coordination: SourceCoordinator, key: str, owner: str, *, ends: timedelta = MINUTE) -> Partition:
    coordination.create_partitions({key: {"checkpoint": "7"}})
    coordination.store.transact(update=[seen(coordination, key).acquired(owner, datetime.now(UTC) + ends)])
    return seen(coordination, key)


def seen(coordination: SourceCoordinator, key: str) -> Partition:
    partition = coordination.view.get(key)
    assert partition is not None
    return partition


def owners(coordination: SourceCoordinator) -> dict[str, str | None]:
    return {partition.partition_key: partition.owner for partition in coordination.view.partitions()}


def test_expired_lease_is_released_and_its_progress_kept(coordination: SourceCoordinator, context: Any) -> None:
    before = held(coordination, "p", "dead", ends=-MINUTE)

    summary = release(partition_keys="p").execute(context)

    assert json.loads(json.dumps(summary)) == summary
    assert summary == {
        "source": "clicks",
        "released": 1,
        "partitions": [{"partition_key": "p", "owner": "dead", "leased_until": before.priority.isoformat()}],
        "left": 0,
        "left_because": {},
    }
    after = seen(coordination, "p")
    assert (after.status, after.owner, after.progress) == (PartitionStatus.UNASSIGNED, None, {"checkpoint": "7"})


def test_supplier_lease_is_released_with_the_run(coordination: SourceCoordinator, context: Any) -> None:
    coordination.supply(lambda state: [])
    item = coordination.store.get("clicks|GLOBAL_STATE", GLOBAL_STATE_KEY)
    assert item is not None
    task = new_owner("dag", RUN, "create", -1, 1)
    coordination.store.transact(update=[item.acquired(task, datetime.now(UTC) + MINUTE)])

    summary = release(run_id=RUN, force=True).execute(context)

    assert [each["partition_key"] for each in summary["partitions"]] == [GLOBAL_STATE_KEY]
    assert coordination.supply(lambda state: []) == []


@pytest.mark.parametrize("choice", [{"partition_keys": ["p", "q"]}, {"lease_owner": "alive"}])
def test_running_lease_blocks_the_whole_release(
    coordination: SourceCoordinator, context: Any, choice: dict[str, Any]
) -> None:
    held(coordination, "p", "alive", ends=-MINUTE)
    held(coordination, "q", "alive")

    with pytest.raises(AirflowFailException, match=r"1 of 2 leases still run.*'q' is held by alive until.*force=True"):
        release(**choice).execute(context)

    assert owners(coordination) == {"p": "alive", "q": "alive"}


def test_force_releases_a_running_lease_and_fences_its_owner(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"p": {}})
    coordination.leases.acquire(1)

    assert release(partition_keys="p", force="True").execute(context)["released"] == 1

    assert owners(coordination) == {"p": None}
    with pytest.raises(Exception, match="p"):
        coordination.leases.checkpoint("p", {"checkpoint": "8"})


def test_only_leases_of_the_run_are_released_in_every_try(coordination: SourceCoordinator, context: Any) -> None:
    for number, (dag, run, task) in enumerate(
        [("dag", RUN, "ingest"), ("dag", RUN, "ingest"), ("dag", RUN, "other"), ("dag2", RUN, "ingest")]
    ):
        held(coordination, f"p{number}", new_owner(dag, run, task, -1, number))
    held(coordination, "p4", "no-task")
    held(coordination, "p5", f"{new_owner('dag', RUN, 'ingest', -1, 1)}{AWAITING_SUFFIX}")

    assert release(run_id=RUN, run_task_id="ingest", force=True).execute(context)["released"] == 2
    assert release(run_id=RUN, force=True).execute(context)["partitions"][0]["partition_key"] == "p2"
    assert release(run_id=RUN, run_dag_id="dag2", force=True).execute(context)["released"] == 1

    assert {key for key, owner in owners(coordination).items() if owner} == {"p4", "p5"}


def test_expired_selection_leaves_running_leases_even_with_force(coordination: SourceCoordinator, context: Any) -> None:
    for key, ends in (("p", -MINUTE), ("q", -MINUTE), ("r", MINUTE), ("s", timedelta(0))):
        held(coordination, key, "host", ends=ends)

    assert release(expired=True, force=True).execute(context)["released"] == 2

    assert owners(coordination) == {"p": None, "q": None, "r": "host", "s": "host"}, "clocks may differ by the margin"


def test_retry_leaves_free_partitions_and_those_of_other_owners(coordination: SourceCoordinator, context: Any) -> None:
    held(coordination, "p", "dead")
    held(coordination, "q", "dead")
    again = release(partition_keys="['p', 'q']", lease_owner="dead", force=True)
    assert again.execute(context)["released"] == 2
    coordination.store.transact(update=[seen(coordination, "q").acquired("next", datetime.now(UTC) + MINUTE)])

    summary = again.execute(context)

    assert (summary["released"], summary["left"]) == (0, 2)
    assert summary["left_because"] == {"p": "it is UNASSIGNED: it has no owner", "q": "next holds it"}
    assert owners(coordination)["q"] == "next"


def test_partition_that_changed_during_the_task_is_left_alone(coordination: SourceCoordinator) -> None:
    before = [held(coordination, key, "dead", ends=-MINUTE) for key in "pqr"]
    coordination.store.transact(update=[before[0].acquired("next", datetime.now(UTC) + MINUTE)])
    coordination.store.transact(update=[before[1].renewed(datetime.now(UTC) + MINUTE)])

    left: dict[str, str] = {}
    by_hand = Administration(coordination.store, coordination.view.source_identifier)
    released = release_seen(by_hand, before, left, datetime.now(UTC))

    assert [partition.partition_key for partition in released] == ["r"]
    assert "is now ASSIGNED to next" in left["p"] and "dead renewed it" in left["q"]
    assert owners(coordination) == {"p": "next", "q": "dead", "r": None}


def test_partition_awaiting_an_acknowledgment_is_refused(coordination: SourceCoordinator, context: Any) -> None:
    held(coordination, "p", f"job{AWAITING_SUFFIX}")
    with pytest.raises(AirflowFailException, match="'p' waits for an acknowledgment until"):
        release(partition_keys="p").execute(context)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "no lease is selected; give 'partition_keys', 'lease_owner', 'run_id' or expired=True"),
        ({"lease_owner": "None", "partition_keys": ""}, "no lease is selected"),
        ({"run_task_id": "ingest"}, "'run_id' must be given with 'run_task_id'; got 'ingest' alone"),
        ({"run_dag_id": "dag", "lease_owner": "x"}, "'run_id' must be given with 'run_dag_id'"),
        ({"partition_keys": ["x"]}, "source 'clicks' has no partition 'x'; check the key"),
        ({"partition_keys": "[]"}, "must be the key of a partition, or a list of names; got \\[\\]"),
        ({"partition_keys": 7}, "field 'partition_keys' must be the key of a partition, or a list of names; got 7"),
        ({"lease_owner": "x", "force": "perhaps"}, "field 'force' must be true or false; got 'perhaps'"),
    ],
)
def test_invalid_request_fails_without_a_retry(
    coordination: SourceCoordinator, context: Any, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        release(**wrong).execute(context)
