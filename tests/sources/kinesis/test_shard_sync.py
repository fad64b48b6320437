"""Shard sync against an in-process Kinesis whose streams appear, disappear and change."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    SourceError,
    SupplierBusyError,
)
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.retries import parked
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_KEY
from airflow_provider_coordination.coordination.suspension import CACHE_SECONDS
from airflow_provider_coordination.sources.kinesis.client import (
    AccessDeniedError,
    QuotaExceededError,
    StreamNotFoundError,
)
from airflow_provider_coordination.sources.kinesis.lease_changes import NOT_NAMED
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON, at_timestamp
from airflow_provider_coordination.sources.kinesis.shards import MAX_HASH_KEY
from airflow_provider_coordination.sources.kinesis.stream_names import QUOTA_TRIES
from airflow_provider_coordination.sources.kinesis.sync import NOTHING_TO_DO, ShardSync
from airflow_provider_coordination.sources.reset import forget
from tests.support.kinesis_server.limits import Limits
from tests.support.kinesis_server.state import Behaviour
from tests.support.shard_graphs import shard
from tests.support.synced import STREAM, GraphClient, SyncedSource, shard_id, sync_shards

UNASSIGNED, ASSIGNED, CLOSED, COMPLETED = PartitionStatus
OTHER = "views"


@pytest.fixture
def synced() -> SyncedSource:
    return SyncedSource(2)


def create(synced: SyncedSource, *streams: str) -> None:
    for stream in streams:
        synced.client.create_stream(StreamName=stream, ShardCount=1)
    synced.pass_time(1)


def recreate(synced: SyncedSource, stream: str = STREAM, shards: int = 1) -> None:
    synced.client.delete_stream(StreamName=stream)
    synced.pass_time(60)
    synced.client.create_stream(StreamName=stream, ShardCount=shards)
    synced.pass_time(1)


def statuses(synced: SyncedSource, stream: str = STREAM) -> list[PartitionStatus]:
    return [partition.status for partition in synced.leases(stream).values()]


# When nothing happens


def test_synced_stream_is_left_alone(synced: SyncedSource) -> None:
    first = synced.sync()
    leases = synced.leases()
    second = synced.sync()

    assert (len(first.created), first.existing, first.shards, first.open_shards) == (2, 0, 2, 2)
    assert (second.created, second.existing, second.counts) == ([], 2, {})
    assert synced.leases() == leases


def test_first_sync_lists_and_writes_once(synced: SyncedSource) -> None:
    synced.sync()

    assert synced.engine.calls["ListShards"] == 1


def test_job_skips_listing_while_every_hash_key_is_read(synced: SyncedSource) -> None:
    synced.sync()
    before = dict(synced.engine.calls)
    summary = synced.summary(forced=False)

    assert summary is not None and summary.skipped == NOTHING_TO_DO
    assert dict(synced.engine.calls) == before
    assert synced.count("shard_syncs_skipped") == 1


def test_job_lists_shards_every_half_hour(synced: SyncedSource) -> None:
    synced.sync()
    synced.pass_time(1800)
    before = synced.engine.calls["ListShards"]
    assert synced.sync(forced=False).error is None
    summary = synced.summary(forced=False)

    assert synced.engine.calls["ListShards"] == before + 1
    assert summary is not None and summary.skipped == NOTHING_TO_DO


def test_job_ignores_a_stream_no_task_began(synced: SyncedSource) -> None:
    summary = synced.summary(forced=False)

    assert summary is not None and summary.skipped == NOTHING_TO_DO
    assert synced.leases() == {}


def test_job_does_not_wait_for_another_syncing_worker(synced: SyncedSource) -> None:
    synced.sync()
    synced.pass_time(1800)
    found = []
    synced.engine.faults.before("ListShards", lambda: found.append(synced.summary(forced=False)))
    ShardSync(synced.client, synced.owner("other")).run([STREAM], forced=False)

    assert found == [None]


def held_by(synced: SyncedSource, holder: str, lease_seconds: float) -> None:
    """Let an owner hold the lease of the sync from now on; there is something to sync."""
    synced.sync()
    synced.delete(1)
    taken_by(synced, holder, lease_seconds)


def taken_by(synced: SyncedSource, holder: str, lease_seconds: float) -> None:
    item = synced.store.get("source|GLOBAL_STATE", GLOBAL_STATE_KEY)
    assert item is not None
    synced.store.transact(update=[item.acquired(holder, synced.clock.now() + timedelta(seconds=lease_seconds))])


def test_task_syncs_once_the_lease_of_a_dead_worker_expires(synced: SyncedSource) -> None:
    held_by(synced, "dead", 900)
    began = synced.clock.monotonic()

    assert len(synced.sync().created) == 1
    assert 902 <= synced.clock.monotonic() - began < 906


def test_task_fails_while_another_worker_keeps_syncing(synced: SyncedSource) -> None:
    held_by(synced, "alive", 60)
    began = synced.clock.monotonic()

    def renewed_during_the_wait(seconds: float) -> None:
        synced.pass_time(seconds)
        taken_by(synced, "alive", 60)

    with pytest.raises(SupplierBusyError, match="another worker, alive, is running the supplier"):
        synced.summary(sleep=renewed_during_the_wait)
    assert synced.clock.monotonic() - began == 600
    assert len(synced.leases()) == 1


def test_retry_of_a_killed_task_syncs_at_once(synced: SyncedSource) -> None:
    held_by(synced, "host:dag:run:sync_shards:-1:1:00000000", 900)
    began = synced.clock.monotonic()
    synced.coordinator = synced.owner("host:dag:run:sync_shards:-1:2:11111111")

    assert len(synced.sync().created) == 1
    assert synced.clock.monotonic() - began < 6


def test_sync_that_lost_its_lease_restarts(synced: SyncedSource) -> None:
    synced.sync()
    synced.delete(1)
    before = synced.engine.calls["ListShards"]

    synced.engine.faults.before("ListShards", lambda: taken_by(synced, "other", 30))
    result = synced.sync()

    assert synced.engine.calls["ListShards"] == before + 2
    assert len(result.created) == 1


def test_task_of_a_suspended_source_reports_it_and_ends(synced: SyncedSource) -> None:
    synced.coordinator.view.suspensions.suspend("ann", "why not")
    began = synced.clock.monotonic()
    summary = synced.summary()
    assert summary is not None and summary.skipped is not None
    assert re.fullmatch(r"the source is suspended by ann since \S+Z: why not", summary.skipped)
    assert synced.leases() == {} and synced.clock.monotonic() == began
    assert synced.summary(forced=False) is not None, "a job does not even ask"


def test_sync_suspended_midway_creates_no_more_and_reports_it(synced: SyncedSource) -> None:
    person = synced.owner("person")

    def before_listing() -> None:
        person.view.suspensions.suspend("ann")
        synced.pass_time(CACHE_SECONDS)

    synced.engine.faults.before("ListShards", before_listing)
    summary = synced.summary()
    assert summary is not None and str(summary.skipped).startswith("the source is suspended by ann")
    assert synced.leases() == {}
    person.view.suspensions.resume()
    synced.pass_time(CACHE_SECONDS)
    assert len(synced.sync().created) == 2


# Where a stream begins


def test_gap_is_filled_from_the_start_of_the_source(synced: SyncedSource) -> None:
    synced.sync(initial_position=LATEST)
    began = at_timestamp(synced.clock.now())
    synced.pass_time(hours=1)
    synced.delete(1)
    result = synced.sync(initial_position=LATEST)

    assert len(result.created) == 1
    assert synced.progress(shard_id(1)).checkpoint == began == result.began
    assert at_timestamp(synced.progress(shard_id(1)).delivered_until or synced.clock.now()) == began


def test_gap_in_an_old_source_owes_no_expired_records(synced: SyncedSource) -> None:
    # Else every reader would take for lost what was delivered before the lease went missing.
    synced.sync(initial_position=LATEST)
    began = synced.progress(shard_id(1)).checkpoint
    synced.pass_time(hours=1000)
    synced.delete(1)
    synced.sync()
    filled = synced.progress(shard_id(1))

    assert (filled.checkpoint, filled.delivered_until, filled.owed_since) == (began, None, synced.clock.now())


def test_latest_with_leases_of_unknown_start_is_now(synced: SyncedSource) -> None:
    synced.sync()
    synced.delete(1)
    [state] = synced.coordinator.store.query("source|GLOBAL_STATE", UNASSIGNED)
    synced.store.transact(update=[state.with_progress({})])  # as after an import
    synced.sync(initial_position=LATEST)

    assert synced.progress(shard_id(1)).checkpoint == at_timestamp(synced.clock.now())
    assert synced.progress(shard_id(0)).checkpoint == TRIM_HORIZON


def test_latest_follows_the_clock_of_the_service(synced: SyncedSource) -> None:
    service = synced.clock.now()
    listed = synced.client.list_shards

    class Client:
        meta = synced.client.meta
        describe_stream_summary = staticmethod(synced.client.describe_stream_summary)

        def list_shards(self, **request: object) -> object:
            date = f"{service:%a, %d %b %Y %H:%M:%S GMT}"
            return {**listed(**request), "ResponseMetadata": {"HTTPHeaders": {"date": date}}}

    synced.client = Client()
    synced.pass_time(30)  # the own clock, as far as the client is concerned
    synced.sync(initial_position=LATEST)

    assert synced.progress(shard_id(0)).checkpoint == at_timestamp(service)


def test_deleted_leases_restart_at_the_start_of_the_source(synced: SyncedSource) -> None:
    synced.sync(initial_position=LATEST)
    began = at_timestamp(synced.clock.now())
    synced.pass_time(hours=2)
    synced.delete(0, 1)
    synced.sync()

    assert {synced.progress(shard_id(n)).checkpoint for n in (0, 1)} == {began}


def test_forgotten_streams_begin_as_new_ones(synced: SyncedSource) -> None:
    synced.sync(initial_position=LATEST)
    synced.pass_time(hours=2)
    create(synced, "orders")
    forget(synced.coordinator, is_idle=True)
    synced.sync("orders", initial_position=LATEST)

    assert synced.progress(shard_id(0), "orders").checkpoint == at_timestamp(synced.clock.now())
    assert synced.leases() == {} and synced.state() is None

    forget(synced.coordinator, is_idle=True)
    synced.sync()

    assert {synced.progress(shard_id(n)).checkpoint for n in (0, 1)} == {TRIM_HORIZON}


def test_instant_beyond_retention_is_trim_horizon_with_a_warning(
    synced: SyncedSource, caplog: pytest.LogCaptureFixture
) -> None:
    synced.pass_time(hours=48)
    synced.sync(initial_position=at_timestamp(synced.clock.now() - timedelta(hours=25)))

    assert synced.progress(shard_id(0)).checkpoint == TRIM_HORIZON
    assert "keeps records for 24 hours only, and not since AT_TIMESTAMP" in caplog.text


def test_instant_in_the_second_of_stream_creation_is_valid() -> None:
    synced = SyncedSource(0)
    created = synced.clock.now()
    synced.pass_time(0.9)
    synced.client.create_stream(StreamName=STREAM, ShardCount=2)
    synced.pass_time(1)
    at = at_timestamp(created + timedelta(seconds=0.5))

    assert len(synced.sync(initial_position=at).created) == 2
    assert synced.progress(shard_id(0)).checkpoint == at


def test_initial_position_in_the_future_is_refused(synced: SyncedSource) -> None:
    position = "AT_TIMESTAMP:2030-01-01T00:00:00.000000Z"
    message = f"field 'initial_position' is '{position}', which is in the future: now is 2026-01-01T00:00:0.Z; give an"
    with pytest.raises(ConfigurationError, match=message):
        synced.sync(initial_position=position)
    assert synced.leases() == {}


def test_parent_begins_at_the_split_instant_and_children_follow(synced: SyncedSource) -> None:
    synced.pass_time(300)
    at = at_timestamp(synced.clock.now())
    synced.split(0)
    listed = synced.client.list_shards(
        StreamName=STREAM, ShardFilter={"Type": "AT_TIMESTAMP", "Timestamp": synced.clock.now() - timedelta(seconds=1)}
    )
    assert len(listed["Shards"]) == 4
    synced.sync(initial_position=at)

    assert synced.names() == "0 1"


def test_instant_before_stream_creation_is_trim_horizon(synced: SyncedSource) -> None:
    at = at_timestamp(synced.clock.now() - timedelta(hours=2))
    synced.sync(initial_position=at)

    assert synced.engine.calls["ListShards"] == 1
    assert synced.progress(shard_id(0)).checkpoint == at


# Resharding


def test_chained_splits_and_merges_are_followed_by_generation(synced: SyncedSource) -> None:
    synced.sync()
    synced.merge(0, 1)
    synced.split(2)
    synced.split(3)
    for finished, leased in (((0, 1), "0 1 2"), ((2,), "2 3 4"), ((3,), "2 3 4 5 6")):
        synced.work_off(*finished)
        assert synced.sync().created == []
        assert synced.names() == leased
    synced.start(4, 5, 6)
    synced.sync()

    assert synced.names() == "4 5 6"


def test_updating_stream_is_synced(synced: SyncedSource) -> None:
    synced.sync()
    synced.engine.behaviour = Behaviour(transition_seconds=30)
    synced.client.split_shard(StreamName=STREAM, ShardToSplit=shard_id(0), NewStartingHashKey="5000")

    assert synced.sync().error is None


def test_finished_partition_stays_for_a_while(synced: SyncedSource) -> None:
    synced.sync()
    synced.split(0)
    synced.work_off(0)
    synced.start(2, 3)

    assert synced.sync(keep_completed=timedelta(hours=1)).removed == {}
    synced.pass_time(hours=1)
    assert len(synced.sync(keep_completed=timedelta(hours=1)).removed) == 1


def test_changed_finished_partition_is_not_removed(synced: SyncedSource) -> None:
    synced.sync()
    synced.split(0)
    synced.work_off(0)
    synced.start(2, 3)
    parent = synced.leases()[shard_id(0)]
    # A person resets it while the sync lists shards.
    synced.engine.faults.before(
        "ListShards", lambda: synced.store.transact(update=[parent.reset(parent.progress, synced.clock.now())])
    )
    result = synced.sync()

    assert (result.removed, result.held) == ({}, [parent.partition_key])
    assert statuses(synced)[0] is UNASSIGNED


def test_unread_expired_shard_parks_only_its_partition(synced: SyncedSource, caplog: pytest.LogCaptureFixture) -> None:
    synced.sync()
    synced.split(0)
    synced.start(0)
    synced.pass_time(hours=25)
    with caplog.at_level(logging.ERROR):
        result = synced.sync()
    [key] = result.lost
    parked = synced.leases()[shard_id(0)]

    assert parked.is_parked and "the shard expired before its end was read" in str(parked.last_error)
    assert result.parked == [key]
    [gap] = synced.progress(shard_id(0)).gaps
    assert gap.after == synced.progress(shard_id(0)).checkpoint
    assert (gap.until, gap.found_at) == (synced.clock.now() - timedelta(hours=24), synced.clock.now())
    assert f"data loss: source=source partition={key} range=({gap.after}, end)" in caplog.text
    assert synced.count("data_loss") == 1
    # Its children wait for a person's decision; whoever is not concerned goes on.
    assert synced.names() == "0 1"


def test_loss_is_reported_once(synced: SyncedSource) -> None:
    synced.sync()
    synced.split(0)
    synced.pass_time(hours=25)
    synced.sync()
    again = synced.sync()

    assert (again.lost, again.parked) == ({}, [])
    assert (synced.count("data_loss"), len(synced.progress(shard_id(0)).gaps)) == (1, 1)


def test_loss_reported_by_a_job_is_not_repeated(synced: SyncedSource) -> None:
    synced.sync()
    synced.split(0)
    synced.pass_time(hours=25)
    key = synced.hold(0)
    progress = synced.progress(shard_id(0))
    gap = progress.gap_to_end("the job's own words", until=None, found_at=synced.clock.now())
    synced.worker.leases.park(key, "the job's own words", progress.with_gap(gap).to_mapping())

    assert synced.sync().lost == {}
    assert synced.leases()[shard_id(0)].last_error == "the job's own words"
    assert synced.sync(on_data_loss="earliest").ended == [key]
    assert len(synced.progress(shard_id(0)).gaps) == 1


@pytest.mark.parametrize("parked_before", [False, True])
def test_unread_expired_shard_is_skipped_on_request(synced: SyncedSource, parked_before: bool) -> None:
    synced.sync()
    synced.split(0)
    synced.pass_time(hours=25)
    if parked_before:
        synced.sync()
    result = synced.sync(on_data_loss="earliest")

    assert result.ended == [synced.leases()[shard_id(0)].partition_key]
    assert statuses(synced) == [COMPLETED, UNASSIGNED, UNASSIGNED, UNASSIGNED]
    assert synced.progress(shard_id(2)).checkpoint == TRIM_HORIZON
    assert (synced.count("data_loss"), len(synced.progress(shard_id(0)).gaps)) == (1, 1)


def test_landed_data_of_an_expired_shard_precedes_its_children(synced: SyncedSource) -> None:
    synced.sync()
    synced.split(0)
    synced.land(0, "100")
    synced.pass_time(hours=25)
    synced.sync(on_data_loss="earliest")
    progress = synced.progress(shard_id(0))

    assert progress.is_ended and [batch.end for batch in progress.landed] == ["100"]
    assert [child.shard_id for child in progress.children] == [shard_id(2), shard_id(3)]
    assert statuses(synced) == [UNASSIGNED, UNASSIGNED]


def test_fully_read_shard_is_not_lost_on_expiry(synced: SyncedSource) -> None:
    synced.sync()
    synced.split(0)
    synced.land(0, "100")
    partition = synced.leases()[shard_id(0)]
    ended = replace(synced.progress(shard_id(0)), is_ended=True)
    synced.store.transact(update=[partition.with_progress(ended.to_mapping())])
    synced.pass_time(hours=25)

    assert synced.sync().lost == {}


def test_shard_missing_only_from_the_listing_is_not_lost(synced: SyncedSource) -> None:
    synced.sync()
    synced.pass_time(hours=25)
    complete = synced.client.list_shards

    class Client:
        meta = synced.client.meta
        describe_stream_summary = staticmethod(synced.client.describe_stream_summary)
        get_shard_iterator = staticmethod(synced.client.get_shard_iterator)

        def list_shards(self, **request: object) -> object:
            return {"Shards": complete(**request)["Shards"][1:]}

    synced.client = Client()

    assert synced.sync().lost == {}


def test_partitions_held_by_a_job_are_left_alone(synced: SyncedSource) -> None:
    synced.sync()
    synced.split(0)
    synced.pass_time(hours=25)
    key = synced.hold(0)
    before = synced.leases()
    result = synced.sync(on_data_loss="earliest")

    assert (result.held, result.lost) == ([key], {})
    assert synced.leases() == before


def test_unfilled_hole_is_relisted_and_reported_once() -> None:
    synced = SyncedSource(client=GraphClient([shard(0, 1, None), shard(1, 2, None, 0), shard(2, 2, None, 0)]))
    synced.sync()
    synced.worker.leases.acquire(1)
    synced.worker.leases.complete(synced.leases()["0"].partition_key)  # it is listed as open: its children wait
    listings = []
    for _ in range(5):
        result = synced.sync(forced=False)
        listings.append(len(synced.client.filters))

    assert listings == [1, 1, 2, 3, 4]
    assert (result.created, result.waiting, result.hole) == ([], ["1", "2"], f"0-{MAX_HASH_KEY}")
    assert synced.count("hash_range_holes") == 1


# Several streams


def test_added_stream_begins_independently(synced: SyncedSource) -> None:
    create(synced, OTHER)
    synced.sync()
    synced.pass_time(60)
    summary = synced.summary(STREAM, OTHER, initial_position=LATEST)

    assert summary is not None
    assert [len(stream.created) for stream in summary.streams] == [0, 1]
    assert synced.progress(shard_id(0), OTHER).checkpoint == at_timestamp(synced.clock.now())
    assert synced.progress(shard_id(0)).checkpoint == TRIM_HORIZON


def test_removed_stream_is_parked_until_named_again(synced: SyncedSource) -> None:
    create(synced, OTHER)
    synced.summary(STREAM, OTHER)
    synced.start(0, stream=OTHER)
    checkpoint = synced.progress(shard_id(0), OTHER).checkpoint
    summary = synced.summary(STREAM)
    [aside] = synced.leases(OTHER).values()

    assert summary is not None and summary.put_aside == [aside.partition_key]
    assert aside.is_parked and aside.last_error == "shard sync: its stream is no longer named in the source"
    assert statuses(synced) == [UNASSIGNED, UNASSIGNED]

    again = synced.summary(STREAM, OTHER)
    assert again is not None and again.streams[1].reopened == [aside.partition_key]
    assert statuses(synced, OTHER) == [UNASSIGNED]
    assert synced.leases(OTHER)[shard_id(0)].attempts == 0
    assert synced.progress(shard_id(0), OTHER).checkpoint == checkpoint
    assert synced.count("data_loss") == 0


def test_partition_parked_for_another_reason_stays_parked(synced: SyncedSource) -> None:
    synced.sync()
    left = parked(synced.leases()[shard_id(0)], "a person shall look at it")
    synced.store.transact(update=[left])
    create(synced, OTHER)
    synced.summary(OTHER)
    synced.summary(STREAM, OTHER)

    assert [p.last_error for p in synced.leases().values()] == ["a person shall look at it", None]


@pytest.mark.parametrize("words", [NOT_NAMED, "shard sync: its stream is gone: stream 'clicks' does not exist"])
def test_partition_parked_by_a_user_like_sync_stays_parked(synced: SyncedSource, words: str) -> None:
    synced.sync()
    left = parked(synced.leases()[shard_id(0)], words)
    synced.store.transact(update=[left])
    result = synced.sync()

    assert result.reopened == []
    assert statuses(synced) == [CLOSED, UNASSIGNED]


def test_partition_reparked_by_a_user_after_sync_stays_parked(synced: SyncedSource) -> None:
    create(synced, OTHER)
    synced.summary(STREAM, OTHER)
    synced.summary(STREAM)
    [aside] = synced.leases(OTHER).values()
    person = Administration(synced.store, "source|PARTITION", synced.clock)
    person.reopen(aside.partition_key)
    person.park(aside.partition_key)
    summary = synced.summary(STREAM, OTHER)

    assert summary is not None and summary.streams[1].reopened == []
    assert statuses(synced, OTHER) == [CLOSED]


def test_stream_parked_twice_is_reopened_twice(synced: SyncedSource) -> None:
    create(synced, OTHER)
    for _ in range(2):
        synced.summary(STREAM, OTHER)
        synced.summary(STREAM)
    summary = synced.summary(STREAM, OTHER)

    assert summary is not None and len(summary.streams[1].reopened) == 1


def test_loss_found_before_stream_removal_is_kept(synced: SyncedSource) -> None:
    synced.sync()
    lease = synced.leases()[shard_id(0)]
    progress = synced.progress(shard_id(0))
    gap = progress.gap_to_end("it expired unread", until=None, found_at=synced.clock.now())
    synced.store.transact(update=[lease.with_progress(progress.with_gap(gap).to_mapping())])
    create(synced, OTHER)
    synced.summary(OTHER)
    synced.summary(STREAM, OTHER)

    assert statuses(synced) == [UNASSIGNED, UNASSIGNED]
    assert [gap.reason for gap in synced.progress(shard_id(0)).gaps] == ["it expired unread"]


def test_job_parks_no_other_streams(synced: SyncedSource) -> None:
    create(synced, OTHER)
    synced.summary(STREAM, OTHER)
    synced.pass_time(1800)
    synced.summary(STREAM, forced=False)

    assert statuses(synced, OTHER) == [UNASSIGNED]


def test_missing_stream_is_an_error_after_syncing_the_others(synced: SyncedSource) -> None:
    with pytest.raises(StreamNotFoundError, match="'klicks' does not exist"):
        synced.summary("klicks", STREAM)

    assert len(synced.leases()) == 2


def test_deleted_stream_is_a_distinct_loss(synced: SyncedSource) -> None:
    create(synced, OTHER)
    synced.summary(STREAM, OTHER)
    synced.client.delete_stream(StreamName=STREAM)
    synced.pass_time(60)
    summary = synced.summary(STREAM, OTHER)

    assert summary is not None
    gone, other = summary.streams
    assert gone.error is not None and "does not exist" in gone.error
    assert len(gone.lost) == len(gone.parked) == synced.count("data_loss") == 2
    assert all(p.is_parked for p in synced.leases().values())
    assert other.error is None and statuses(synced, OTHER) == [UNASSIGNED]


def test_stream_reopens_without_loss_after_a_wrong_account(synced: SyncedSource) -> None:
    synced.sync()
    right, wrong = synced.client, SyncedSource(0).client
    synced.client = wrong
    synced.summary()
    assert all(p.is_parked for p in synced.leases().values())
    synced.client = right
    result = synced.sync()

    assert len(result.reopened) == 2
    assert synced.progress(shard_id(0)).gaps == ()
    assert statuses(synced) == [UNASSIGNED, UNASSIGNED]


@pytest.mark.parametrize("on_data_loss", ["fail", "earliest"])
def test_recreated_stream_is_read_from_its_first_record(synced: SyncedSource, on_data_loss: str) -> None:
    synced.sync(initial_position=LATEST)
    former = {p.partition_key for p in synced.leases().values()}
    recreate(synced)
    result = synced.sync(initial_position=LATEST, on_data_loss=on_data_loss)
    stored = {p.partition_key: p for p in synced.coordinator.view.partitions()}
    [new] = result.created

    assert set(result.lost) == former
    assert stored[new].progress["checkpoint"] == TRIM_HORIZON
    assert {stored[key].status for key in former} == {CLOSED if on_data_loss == "fail" else COMPLETED}
    assert stored[next(iter(former))].progress["gaps"][0]["reason"].endswith("was deleted and created again")


def test_stream_recreated_after_deletion_is_read_from_its_start(synced: SyncedSource) -> None:
    synced.sync(initial_position=LATEST)
    synced.client.delete_stream(StreamName=STREAM)
    synced.pass_time(60)
    synced.summary()
    create(synced, STREAM)
    result = synced.sync(initial_position=LATEST)

    assert result.began == TRIM_HORIZON


def test_recreated_stream_is_recognized_from_remembered_state(synced: SyncedSource) -> None:
    synced.sync(initial_position=LATEST)
    synced.delete(0, 1)
    recreate(synced)

    assert synced.sync(initial_position=LATEST).began == TRIM_HORIZON


def test_job_detects_a_recreated_stream(synced: SyncedSource) -> None:
    synced.sync()
    recreate(synced)
    synced.pass_time(1800)

    assert len(synced.sync(forced=False).created) == 1


# What can go wrong


def test_job_continues_without_permission_to_list_shards(
    synced: SyncedSource, caplog: pytest.LogCaptureFixture
) -> None:
    create(synced, OTHER)
    synced.summary(STREAM, OTHER)
    synced.pass_time(1800)
    synced.engine.faults.deny("ListShards", stream=STREAM)
    summary = synced.summary(STREAM, OTHER, forced=False)

    assert summary is not None
    assert "access denied" in str(summary.streams[0].error) and summary.streams[1].error is None
    assert synced.count("shard_sync_failures") == 1
    assert f"stream {STREAM} could not be synced" in caplog.text


def test_task_fails_without_permission_to_list_shards(synced: SyncedSource) -> None:
    synced.engine.faults.deny("ListShards")

    with pytest.raises(AccessDeniedError, match=r"stream 'clicks'.*check the credentials, their policy"):
        synced.sync()


def test_exceeded_listing_quota_is_waited_for() -> None:
    synced = SyncedSource(2)
    synced.engine.limits = Limits(list_shards_per_second=1)
    synced.client.list_shards(StreamName=STREAM)

    assert len(synced.sync().created) == 2


def test_persistently_exceeded_quota_is_an_error(synced: SyncedSource) -> None:
    synced.engine.faults.throttle("ListShards", times=QUOTA_TRIES)

    with pytest.raises(QuotaExceededError):
        synced.sync()


def test_task_waits_for_a_stream_being_created() -> None:
    synced = SyncedSource(0)
    synced.engine.behaviour = Behaviour(transition_seconds=20)
    synced.client.create_stream(StreamName=STREAM, ShardCount=1)

    assert len(synced.sync().created) == 1


def test_unreadable_global_state_stops_the_sync(synced: SyncedSource) -> None:
    synced.sync()
    [state] = synced.store.query("source|GLOBAL_STATE", UNASSIGNED)
    synced.store.transact(update=[state.with_progress({"streams": [], "named": [], "later": 1})])

    with pytest.raises(SourceError, match=r"unknown field 'later'.*a newer version"):
        synced.sync()


def test_unreadable_progress_is_left_alone(synced: SyncedSource) -> None:
    synced.sync()
    partition = synced.leases()[shard_id(0)]
    synced.store.transact(update=[partition.with_progress({"shard_id": 7})])
    result = synced.sync()

    assert result.created == []
    assert synced.leases()[shard_id(0)].progress == {"shard_id": 7}


def test_partitions_of_other_kinds_are_left_alone(synced: SyncedSource) -> None:
    synced.coordinator.create_partitions({"x": {}})
    synced.sync()

    assert synced.coordinator.view.get("x") is not None


# The state, and the summary


def test_state_of_removed_streams_is_forgotten(synced: SyncedSource) -> None:
    create(synced, OTHER)
    synced.summary(STREAM, OTHER)
    synced.delete(0, stream=OTHER)
    synced.summary(STREAM)

    assert synced.state(OTHER) is None and synced.state(STREAM) is not None


def test_summary_stays_small_and_counts_all() -> None:
    synced = SyncedSource(150)
    summary = synced.summary()
    assert summary is not None
    shortened = summary.to_mapping()["streams"][0]

    assert len(shortened["created"]) == 100
    assert shortened["counts"] == {"created": 150}


def test_single_call_syncs_one_stream(synced: SyncedSource) -> None:
    assert sync_shards(synced.client, synced.coordinator, STREAM).open_shards == 2
