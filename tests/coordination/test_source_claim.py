"""Claims decide which DAGs may read or deliver a source."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_claim import (
    FAMILY,
    KEYS,
    DeliveryClaim,
    SourceClaim,
    claim,
    claimed,
)
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.clock import ManualClock


class ClaimedSource:
    """A source in a store of its own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.coordinator = SourceCoordinator(InMemoryStore(), "events", "me", clock=self.clock)
        self.coordinator.initialize()

    def read_by(self, dag_id: str, kind: str = "s3", **location: Any) -> None:
        claim(
            self.coordinator.view,
            SourceClaim(dag_id=dag_id, task_id="ingest", claimed_at=self.clock.now(), kind=kind, location=location),
        )

    def delivered_by(self, dag_id: str, task_id: str = "ingest", **sinks: str) -> None:
        claim(
            self.coordinator.view,
            DeliveryClaim(dag_id=dag_id, task_id=task_id, claimed_at=self.clock.now(), sinks=sinks),
        )

    @property
    def delivery(self) -> DeliveryClaim:
        item = claimed(self.coordinator.view, DeliveryClaim.KEY)
        assert item is not None
        return DeliveryClaim.of(item)

    @property
    def claim(self) -> SourceClaim:
        item = claimed(self.coordinator.view)
        assert item is not None
        return SourceClaim.of(item)


@pytest.fixture
def source() -> ClaimedSource:
    return ClaimedSource()


def test_first_dag_claims_the_source(source: ClaimedSource) -> None:
    source.read_by("a", paths=("s3://b/x",))
    assert (source.claim.dag_id, source.claim.kind, source.claim.location) == ("a", "s3", {"paths": ["s3://b/x"]})


def test_dag_with_the_same_source_may_read_it(source: ClaimedSource) -> None:
    source.read_by("a", paths=("s3://b/x",))
    before = claimed(source.coordinator.view)
    source.read_by("b", paths=("s3://b/x",))
    assert claimed(source.coordinator.view) == before


def test_dag_reading_elsewhere_is_refused_with_difference(source: ClaimedSource) -> None:
    source.read_by("a", table="orders", conn="x")
    with pytest.raises(ConfigurationError) as error:
        source.read_by("b", table="returns", conn="x")
    for message in (
        "source 'events' is claimed by DAG 'a', by its task 'ingest' at 2026-",
        "but DAG 'b' reads something else under that name: table 'returns' here and 'orders' there;",
        "airflow-coordination unclaim events",
    ):
        assert message in str(error.value)
    assert "conn" not in str(error.value)
    assert source.claim.location["table"] == "orders"


def test_other_kind_is_refused_with_equal_settings(source: ClaimedSource) -> None:
    source.read_by("a", "s3", conn="x")
    with pytest.raises(ConfigurationError, match="kind 'jdbc' here and 's3' there;"):
        source.read_by("b", "jdbc", conn="y")


def test_missing_setting_counts_as_a_difference(source: ClaimedSource) -> None:
    source.read_by("a", region="eu")
    with pytest.raises(ConfigurationError, match="region nothing here and 'eu' there"):
        source.read_by("b")


def test_claiming_dag_may_change_settings_and_reports_it(
    source: ClaimedSource, caplog: pytest.LogCaptureFixture
) -> None:
    source.read_by("a", table="orders")
    with caplog.at_level(logging.WARNING):
        source.read_by("a", table="returns")
    assert (
        "claim to read a source changed: source=events dag=a task=ingest before=ingest: table 'returns' here"
        in caplog.text
    )
    assert source.claim.location == {"table": "returns"}


def test_long_values_are_truncated_in_the_message(source: ClaimedSource) -> None:
    source.read_by("a", query="x" * 5000)
    with pytest.raises(ConfigurationError) as error:
        source.read_by("b", query="y" * 5000)
    assert len(str(error.value)) < 1000


def test_unreadable_claim_is_refused_with_the_reason(source: ClaimedSource) -> None:
    source.read_by("a")
    item = claimed(source.coordinator.view)
    assert item is not None
    source.coordinator.store.transact(update=[item.with_progress({"from": "the future"})])
    with pytest.raises(ConfigurationError, match=r"stored claim to read a source is invalid: {'from': 'the future'}"):
        source.read_by("a")


def test_only_one_of_two_concurrent_dags_claims_it(source: ClaimedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    store = source.coordinator.store
    create = store.create

    def somebody_is_faster(partitions: list[Partition]) -> list[str]:
        monkeypatch.setattr(store, "create", create)
        source.read_by("a", table="orders")
        return create(partitions)

    monkeypatch.setattr(store, "create", somebody_is_faster)
    with pytest.raises(ConfigurationError, match="claimed by DAG 'a'"):
        source.read_by("b", table="returns")


def test_concurrent_take_over_is_retried(source: ClaimedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    source.read_by("a", table="1")
    store = source.coordinator.store
    transact = store.transact

    def refused(**changes: Any) -> list[Partition]:
        monkeypatch.setattr(store, "transact", transact)
        source.read_by("a", table="2")
        raise PartitionUpdateError("somebody was faster")

    monkeypatch.setattr(store, "transact", refused)
    source.read_by("a", table="3")
    assert source.claim.location == {"table": "3"}


def test_claim_is_no_partition(source: ClaimedSource) -> None:
    source.read_by("a")
    assert not any(source.coordinator.view.count_by_status().values())
    source.delivered_by("a", main="/lake")
    assert not any(source.coordinator.view.count_by_status().values())
    assert all(source.coordinator.store.get(source.coordinator.view.family(FAMILY), key) is not None for key in KEYS)


def test_dag_with_the_same_sinks_may_deliver(source: ClaimedSource) -> None:
    source.delivered_by("a", main="/lake", copy="/copy")
    before = claimed(source.coordinator.view, DeliveryClaim.KEY)
    source.delivered_by("b", main="/lake", copy="/copy")
    assert claimed(source.coordinator.view, DeliveryClaim.KEY) == before


@pytest.mark.parametrize(
    ("sinks", "difference"),
    [
        ({"main": "/other"}, "sink main '/other' here and '/lake' there;"),
        ({"main": "/lake", "copy": "/copy"}, "sink copy '/copy' here and nothing there;"),
        ({"main": "/lake where amount > 0"}, "sink main '/lake where amount > 0' here and '/lake' there;"),
    ],
)
def test_dag_delivering_elsewhere_is_refused_with_difference(
    source: ClaimedSource, sinks: dict[str, str], difference: str
) -> None:
    source.delivered_by("a", main="/lake")
    with pytest.raises(ConfigurationError) as error:
        source.delivered_by("b", **sinks)
    for message in (
        "source 'events' is delivered by DAG 'a', by its task 'ingest' at 2026-",
        f"but DAG 'b' delivers it elsewhere, where the batches of the first DAG would be missing: {difference}",
        "give both the same sinks, or give one of them another 'source' or, if DAG 'a' no longer delivers it, run:",
        "airflow-coordination unclaim events",
    ):
        assert message in str(error.value)
    assert source.delivery.sinks == {"main": "/lake"}


def test_delivering_dag_may_change_its_sinks(source: ClaimedSource, caplog: pytest.LogCaptureFixture) -> None:
    source.delivered_by("a", "old", main="/lake")
    with caplog.at_level(logging.WARNING):
        source.delivered_by("a", "new", main="/lake", copy="/copy")
    said = (
        "claim to deliver a source changed: source=events dag=a task=new before=old: sink copy '/copy' here and nothing"
    )
    assert said in caplog.text
    assert source.delivery.sinks == {"main": "/lake", "copy": "/copy"}


def test_reading_and_delivering_dags_may_differ(source: ClaimedSource) -> None:
    source.read_by("sync", table="orders")
    source.read_by("ingest", table="orders")
    source.delivered_by("ingest", main="/lake")
    assert (source.claim.dag_id, source.delivery.dag_id) == ("sync", "ingest")
