"""The watermark of a source: how far everything is delivered, what holds it, and how far each sink is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_KEY
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.progress import SETTLING
from airflow_provider_coordination.sources.kinesis.sync_state import SyncState
from airflow_provider_coordination.sources.watermarks import Watermark, watermark_of
from tests.support.batches import NOON, a_batch, begin_delivery
from tests.support.synced import STREAM, SyncedSource, shard_id


@pytest.fixture
def source() -> SyncedSource:
    source = SyncedSource()
    source.sync()
    return source


def watermark(source: SyncedSource) -> Watermark:
    found = watermark_of(source.coordinator.view)
    assert found is not None
    return found


def deliver(source: SyncedSource, number: int, until: timedelta, *sinks: str) -> str:
    """Deliver a batch of a shard, or leave it to sinks; return its acknowledgment set."""
    key = source.hold(number)
    start = source.progress(shard_id(number)).landed_position
    batch = a_batch(start, str(int(source.shard(number).starting_sequence_number) + 1), read_until=NOON + until)
    begun = begin_delivery(source.worker, key, batch, sinks, sinks=sinks)
    return begun.set_id


def test_watermark_is_unknown_until_every_shard_is_read(source: SyncedSource) -> None:
    deliver(source, 0, timedelta(0))
    found = watermark(source)
    assert found.until is None
    assert [(hold.name, hold.reason) for hold in found.held_by][:1] == [
        (source.leases()[shard_id(1)].partition_key, "no job reads it")
    ]


def test_watermark_is_the_least_that_settled(source: SyncedSource) -> None:
    deliver(source, 0, timedelta(minutes=5))
    deliver(source, 1, timedelta(minutes=2))
    found = watermark(source)
    assert found.until == NOON + timedelta(minutes=2) - SETTLING
    assert found.has_reached(NOON + timedelta(minutes=1)) and not found.has_reached(NOON + timedelta(minutes=2))
    assert found.held_by[0].name == source.leases()[shard_id(1)].partition_key


def test_parked_partition_holds_the_watermark(source: SyncedSource) -> None:
    for number in (0, 1):
        deliver(source, number, timedelta(0))
    key = source.leases()[shard_id(1)].partition_key
    source.worker.leases.give_up_all()
    Administration(source.store, "source|PARTITION", source.clock).park(key, expected=source.leases()[shard_id(1)])
    found = watermark(source)
    assert found.until == NOON - SETTLING
    assert next(hold for hold in found.held_by if hold.name == key).reason.startswith("parked: ")


def test_sink_that_has_more_is_ahead(source: SyncedSource) -> None:
    for number in (0, 1):
        deliver(source, number, timedelta(0))
        source.worker.leases.give_up_all()
    waiting = deliver(source, 0, timedelta(hours=1), "lake", "warehouse")
    deliver(source, 1, timedelta(hours=2))
    sets = AcknowledgmentSets(source.worker, SourceBatches())
    sets.delivered(sets.view.get(waiting), ["lake"])
    found = watermark(source)
    assert found.until == NOON - SETTLING
    assert found.sinks == {"lake": NOON + timedelta(hours=1) - SETTLING}
    assert found.held_by[0].reason == "waits for warehouse"


def test_shard_without_partition_for_its_children_holds(source: SyncedSource) -> None:
    for number in (0, 1):
        deliver(source, number, timedelta(0))
        source.worker.leases.give_up_all()
    source.split(0)
    source.work_off(0)
    deliver(source, 1, timedelta(hours=1))
    for number in (2, 3):
        source.delete(number)
    found = watermark(source)
    assert found.until == NOON - SETTLING
    assert found.held_by[0].name == source.leases()[shard_id(0)].partition_key
    assert found.held_by[0].reason == "its children have no partition; a shard sync creates them"


def test_children_begin_where_their_parent_was_delivered(source: SyncedSource) -> None:
    for number in (0, 1):
        deliver(source, number, timedelta(0))
        source.worker.leases.give_up_all()
    source.split(0)
    source.work_off(0)
    for number in (2, 3):
        source.delete(number)
    source.sync()
    assert source.names() == "0 1 2 3"
    assert watermark(source).until == NOON - SETTLING


def test_stream_that_was_never_listed_holds(source: SyncedSource) -> None:
    for number in (0, 1):
        deliver(source, number, timedelta(0))
    item = source.store.get("source|GLOBAL_STATE", GLOBAL_STATE_KEY)
    assert item is not None
    state = replace(SyncState.from_mapping(item.progress), named=(STREAM, "views"))
    source.store.transact(update=[item.with_progress(state.to_mapping())])
    found = watermark(source)
    assert (found.until, found.held_by[0].name) == (None, "stream views")


def test_stream_that_is_no_longer_named_holds_nothing(source: SyncedSource) -> None:
    source.client.create_stream(StreamName="views", ShardCount=1)
    source.pass_time(1)
    source.summary(STREAM, "views")
    for number in (0, 1):
        deliver(source, number, timedelta(0))
        source.worker.leases.give_up_all()
    assert watermark(source).until is None
    source.summary(STREAM)
    assert watermark(source).until == NOON - SETTLING


def test_source_without_times_of_arrival_has_no_watermark(source: SyncedSource) -> None:
    other = SyncedSource(0)
    other.coordinator.create_partitions(
        {"rows": PartitionProgress(kind="jdbc", items=({"where": "id < 10"},)).to_mapping()}
    )
    assert watermark_of(other.coordinator.view) is None
    assert watermark_of(SyncedSource(0).coordinator.view) is None
