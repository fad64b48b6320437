"""A source forgets all that it has read or nothing, and nothing that is being read."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    PartitionUpdateError,
    StoreUnavailableError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.source_claim import SourceClaim, claim, claimed
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.reset import forget, forgettable, left_of
from tests.coordination.fleet import Fleet
from tests.coordination.unreliable_store import Fault


@pytest.fixture
def fleet() -> Fleet:
    """The source `clicks` with two partitions, their claims, a supplier's state and the claim of a DAG; suspended."""
    fleet = Fleet()
    supplier = fleet.owner("supplier")
    page = Page({"x": {}, "y": {}}, state={"scans": 1}, claims={"x": ["a", "b"], "y": ["c"]})
    supplier.supply(lambda _: [page])
    supplier.claims.forget(fleet.clock.now(), claimed_before=fleet.clock.now(), limit=0)
    claim(
        supplier.view,
        SourceClaim(dag_id="dag", task_id="scan", claimed_at=fleet.clock.now(), kind="s3", location={"paths": ["/in"]}),
    )
    supplier.view.suspensions.suspend("ann")
    return fleet


def remaining(source: SourceCoordinator) -> tuple[int, int, bool, Any, Any]:
    """Return the numbers of partitions and claims, whether the source is empty, and what else it remembers."""
    claims = source.store.query(source.view.family("CLAIM"), PartitionStatus.COMPLETED, limit=10)
    partitions = sum(source.view.count_by_status().values())
    return partitions, len(claims), source.view.is_empty(), source.claims.forgotten_before(), claimed(source.view)


def test_forgetting_leaves_nothing_of_a_source(fleet: Fleet) -> None:
    person = fleet.owner("person")
    assert [(each.partition_key, error) for each, error in forget(person, by="ann")] == [("x", None), ("y", None)]
    assert remaining(person) == (0, 0, True, None, None)
    assert forget(person) == []
    person.view.suspensions.resume("ann", "")
    assert fleet.owner("supplier").supply(lambda state: [Page({str(state): {}}, claims={"{}": ["a"]})]) == ["{}"]


def test_names_that_another_source_claims_stay(fleet: Fleet) -> None:
    person = fleet.owner("person")
    other = Claims(fleet.store, "test|hours|CLAIM", fleet.clock)
    other.share("test|clicks|CLAIM")
    fleet.store.create(other.of("theirs", ["d"]))
    forget(person)
    assert person.claims.partition_of("d") == "theirs" and person.claims.partition_of("a") is None


def test_running_source_is_not_forgotten(fleet: Fleet) -> None:
    person = fleet.owner("person")
    person.view.suspensions.resume("ann", "")
    with pytest.raises(SupervisionError, match=r"suspend it, and wait until .* suspend clicks --reason REASON"):
        forget(person)
    assert remaining(person)[:2] == (2, 3)
    assert [each.partition_key for each in forgettable(person, is_idle=True)] == ["x", "y"]


@pytest.mark.parametrize("what", ["x", "the supplier"])
def test_held_lease_is_not_forgotten(fleet: Fleet, what: str) -> None:
    person = fleet.owner("person")
    item = fleet.stored("x") if what == "x" else fleet.global_state()
    fleet.store.transact(update=[item.acquired("job", fleet.clock.now())])
    with pytest.raises(SupervisionError, match=f"cannot forget what is leased: '{what}'; .* release clicks --expired"):
        forget(person)
    assert remaining(person)[:2] == (2, 3)


@pytest.mark.parametrize("progress", [{"acknowledgment_set": "s"}, {"kind": "kinesis", "landed": "damaged"}])
def test_undelivered_batch_is_not_forgotten(fleet: Fleet, progress: dict[str, Any]) -> None:
    person = fleet.owner("person")
    fleet.store.transact(update=[fleet.stored("y").with_progress(progress)])
    with pytest.raises(SupervisionError, match="1 partitions with batches that are not acknowledged: 'y'; resume it"):
        forget(person)
    assert remaining(person)[:2] == (2, 3)


def test_acquired_partition_keeps_claims_and_state(fleet: Fleet) -> None:
    person = fleet.owner("person")
    taken = fleet.stored("y").acquired("job", fleet.clock.now())
    fleet.store.fault = Fault(before=lambda: fleet.store.store.transact(update=[taken]))
    results = {partition.partition_key: type(error) for partition, error in forget(person)}
    assert results == {"x": type(None), "y": PartitionUpdateError}
    assert remaining(person)[:3] == (1, 3, False)


def test_concurrent_supplier_keeps_its_claims(fleet: Fleet) -> None:
    person, state = fleet.owner("person"), fleet.global_state()
    fleet.store.fault = Fault(before=lambda: fleet.store.store.transact(update=[state.with_progress({"scans": 2})]))
    with pytest.raises(PartitionUpdateError, match="the supplier of source 'clicks' ran in between; forget again"):
        forget(person)
    assert remaining(person)[:3] == (0, 3, False)


@pytest.mark.parametrize("writes", range(8))
def test_second_attempt_completes_after_a_store_outage(fleet: Fleet, writes: int) -> None:
    person = fleet.owner("person")

    def one_less(left: int) -> None:
        if left:
            fleet.store.fault = Fault(after=lambda: one_less(left - 1))
        else:
            fleet.store.away = True

    one_less(writes)
    with pytest.raises(StoreUnavailableError):
        forget(person)
    fleet.store.away, fleet.store.fault = False, None
    assert claimed(person.view) is not None
    forget(person)
    assert remaining(person) == (0, 0, True, None, None)


@pytest.mark.parametrize(
    ("kind", "before", "now", "left"),
    [
        ("s3", {"paths": ["s3://one/a", "/in"]}, {"paths": ["s3://one/b"]}, ["location 'file'"]),
        ("s3", {"paths": ["hdfs://n:8020/a"]}, {"paths": ["hdfs://m:8020/a"]}, ["location 'hdfs://n:8020'"]),
        ("s3", {"paths": ["/in/a"]}, {"paths": ["file:///in/b"]}, []),
        ("jdbc", {"table": "orders"}, {"query": "SELECT 1"}, ["table 'orders'"]),
        ("jdbc", {"query": "SELECT 1"}, {"query": "SELECT 2"}, ["query 'SELECT 1'"]),
        ("dynamodb", {"table": "a", "region_name": "eu"}, {"table": "a", "region_name": "us"}, ["region_name 'eu'"]),
        ("dynamodb", {"table": "a", "region_name": "eu"}, {"table": "a", "region_name": None}, []),
        ("dynamodb", {"table": "a", "region_name": None}, {"table": "a", "region_name": "us"}, []),
        ("dynamodb_export", {"table_arn": "a"}, {"table_arn": "b"}, ["table_arn 'a'"]),
        ("dynamodb_export", {"table_arn": "a"}, {}, []),
        ("opensearch", {"indices": ["a", "b-*"]}, {"indices": ["b-*"]}, ["index 'a'"]),
        ("kinesis", {"region": "eu"}, {"region": "us"}, ["region 'eu'"]),
        ("kinesis", {"streams": ["a"], "region": "eu"}, {"streams": ["b"]}, []),
        ("weather", {"reader": "a:A", "conn_id": "x", "url": "u"}, {"reader": "b:B", "url": "u"}, []),
        ("weather", {"url": "u"}, {"url": "v"}, ["url 'u'"]),
    ],
)
def test_kind_decides_which_change_leaves_data(
    kind: str, before: dict[str, Any], now: dict[str, Any], left: list[str]
) -> None:
    assert left_of(kind, before, kind, now) == left


def test_another_kind_leaves_everything() -> None:
    assert left_of("s3", {"paths": ["/in"]}, "weather", {}) == ["kind 's3'"]
