"""Which DAGs may read or deliver a source: those that mean the same thing by its name."""

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
from airflow_provider_coordination.stores.in_memory import InMemoryStore
from tests.support.clock import ManualClock


class Source:
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
def source() -> Source:
    return Source()


def test_the_first_dag_claims_it(source: Source) -> None:
    source.read_by("a", paths=("s3://b/x",))
    assert (source.claim.dag_id, source.claim.kind, source.claim.location) == ("a", "s3", {"paths": ["s3://b/x"]})


def test_another_dag_that_means_the_same_may_read_it_and_the_claim_stays(source: Source) -> None:
    source.read_by("a", paths=("s3://b/x",))
    before = claimed(source.coordinator.view)
    source.read_by("b", paths=("s3://b/x",))
    assert claimed(source.coordinator.view) == before


def test_another_dag_that_reads_elsewhere_is_refused_with_both_named_and_what_differs(source: Source) -> None:
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


def test_another_kind_is_refused_whatever_else_is_the_same(source: Source) -> None:
    source.read_by("a", "s3", conn="x")
    with pytest.raises(ConfigurationError, match="kind 'jdbc' here and 's3' there;"):
        source.read_by("b", "jdbc", conn="y")


def test_what_one_of_them_does_not_say_differs(source: Source) -> None:
    source.read_by("a", region="eu")
    with pytest.raises(ConfigurationError, match="region nothing here and 'eu' there"):
        source.read_by("b")


def test_the_dag_that_claimed_it_takes_it_over_with_other_settings_and_says_so(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.read_by("a", table="orders")
    with caplog.at_level(logging.WARNING):
        source.read_by("a", table="returns")
    assert (
        "claim to read a source changed: source=events dag=a task=ingest before=ingest: table 'returns' here"
        in caplog.text
    )
    assert source.claim.location == {"table": "returns"}


def test_long_values_are_cut_in_the_message(source: Source) -> None:
    source.read_by("a", query="x" * 5000)
    with pytest.raises(ConfigurationError) as error:
        source.read_by("b", query="y" * 5000)
    assert len(str(error.value)) < 1000


def test_a_claim_that_cannot_be_read_is_refused_with_what_is_wrong(source: Source) -> None:
    source.read_by("a")
    item = claimed(source.coordinator.view)
    assert item is not None
    source.coordinator.store.transact(update=[item.with_progress({"from": "the future"})])
    with pytest.raises(ConfigurationError, match=r"stored claim to read a source is invalid: {'from': 'the future'}"):
        source.read_by("a")


def test_two_dags_that_claim_it_at_once_do_not_both_get_it(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    store = source.coordinator.store
    create = store.create

    def somebody_is_faster(partitions: list[Partition]) -> list[str]:
        monkeypatch.setattr(store, "create", create)
        source.read_by("a", table="orders")
        return create(partitions)

    monkeypatch.setattr(store, "create", somebody_is_faster)
    with pytest.raises(ConfigurationError, match="claimed by DAG 'a'"):
        source.read_by("b", table="returns")


def test_a_take_over_that_meets_another_one_looks_again(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_claim_is_no_partition(source: Source) -> None:
    source.read_by("a")
    assert not any(source.coordinator.view.count_by_status().values())
    source.delivered_by("a", main="/lake")
    assert not any(source.coordinator.view.count_by_status().values())
    assert all(source.coordinator.store.get(source.coordinator.view.family(FAMILY), key) is not None for key in KEYS)


def test_a_dag_that_delivers_to_the_same_places_may_deliver_it_too_and_the_claim_stays(source: Source) -> None:
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
def test_a_dag_that_delivers_elsewhere_is_refused_with_both_named_and_what_differs(
    source: Source, sinks: dict[str, str], difference: str
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


def test_the_dag_that_delivers_it_may_change_its_sinks_and_the_log_names_both_tasks(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.delivered_by("a", "old", main="/lake")
    with caplog.at_level(logging.WARNING):
        source.delivered_by("a", "new", main="/lake", copy="/copy")
    said = (
        "claim to deliver a source changed: source=events dag=a task=new before=old: sink copy '/copy' here and nothing"
    )
    assert said in caplog.text
    assert source.delivery.sinks == {"main": "/lake", "copy": "/copy"}


def test_one_dag_may_read_what_another_one_delivers(source: Source) -> None:
    source.read_by("sync", table="orders")
    source.read_by("ingest", table="orders")
    source.delivered_by("ingest", main="/lake")
    assert (source.claim.dag_id, source.delivery.dag_id) == ("sync", "ingest")
