"""Streams that a search finds join a source with the next sync, and those that are gone end."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.stream_names import StreamSearch, with_found
from airflow_provider_coordination.sources.kinesis.sync import ShardSync
from airflow_provider_coordination.sources.kinesis.sync_state import ShardSyncSummary, SyncState
from tests.support.kinesis_server.engine import Engine, connect
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.synced import SyncedSource, shard_id

SEARCH = StreamSearch("clicks-*")


@pytest.fixture
def synced() -> SyncedSource:
    found = SyncedSource(0)
    create(found, "clicks-de", "clicks-fr", "views")
    return found


def create(synced: SyncedSource, *streams: str) -> None:
    for stream in streams:
        synced.client.create_stream(StreamName=stream, ShardCount=1)
    synced.pass_time(1)


def sync(
    synced: SyncedSource, *given: str, search: StreamSearch = SEARCH, on_data_loss: str = "fail"
) -> ShardSyncSummary:
    """Sync as `KinesisStreams.sync` does."""
    found = search.find(synced.client)
    sync = ShardSync(synced.client, synced.coordinator, on_data_loss=on_data_loss, sleep=synced.clock.sleep)
    summary = sync.run(with_found(given, found.matching), forced=True, existing=found.existing)
    assert summary is not None
    return summary


def named(synced: SyncedSource) -> tuple[str, ...]:
    return SyncState.from_mapping(synced.coordinator.view.supplier_state()).named


def test_found_streams_are_leased(synced: SyncedSource) -> None:
    summary = sync(synced)

    assert [len(stream.created) for stream in summary.streams] == [1, 1]
    assert (synced.leases("views"), named(synced)) == ({}, ("clicks-de", "clicks-fr"))


def test_new_stream_joins_with_the_next_sync(synced: SyncedSource) -> None:
    sync(synced)
    create(synced, "clicks-it")

    sync(synced)

    assert list(synced.leases("clicks-it")) == [shard_id(0)]
    assert named(synced) == ("clicks-de", "clicks-fr", "clicks-it")


def test_stream_that_no_longer_matches_is_put_aside(synced: SyncedSource) -> None:
    synced.client.add_tags_to_stream(StreamName="clicks-de", Tags={"team": "web"})
    by_tag = StreamSearch(tags={"team": "web"})
    sync(synced, search=by_tag)
    synced.client.remove_tags_from_stream(StreamName="clicks-de", TagKeys=["team"])

    summary = sync(synced, search=by_tag)
    [parked] = synced.leases("clicks-de").values()
    assert (summary.put_aside, parked.is_parked, parked.progress["gaps"]) == ([parked.partition_key], True, [])

    synced.client.add_tags_to_stream(StreamName="clicks-de", Tags={"team": "web"})
    sync(synced, search=by_tag)
    assert [lease.status for lease in synced.leases("clicks-de").values()] == [PartitionStatus.UNASSIGNED]


@pytest.mark.parametrize(
    ("on_data_loss", "status"), [("fail", PartitionStatus.CLOSED), ("earliest", PartitionStatus.COMPLETED)]
)
def test_deleted_stream_ends(synced: SyncedSource, on_data_loss: str, status: PartitionStatus) -> None:
    sync(synced)
    synced.client.delete_stream(StreamName="clicks-de")

    summary = sync(synced, on_data_loss=on_data_loss)

    assert summary.put_aside == []
    [lease] = synced.leases("clicks-de").values()
    assert (lease.status, len(lease.progress["gaps"])) == (status, 1)
    again = sync(synced, on_data_loss=on_data_loss)
    assert [stream.lost for stream in again.streams if stream.stream == "clicks-de"] in ([], [{}])


def test_stream_deleted_before_it_is_leased_is_left_out(synced: SyncedSource) -> None:
    synced.engine.faults.before(
        "DescribeStreamSummary", lambda: synced.client.delete_stream(StreamName="clicks-de"), times=1
    )

    summary = sync(synced)

    assert (synced.leases("clicks-de"), list(synced.leases("clicks-fr"))) == ({}, [shard_id(0)])
    assert [stream.error for stream in summary.streams] == [None, None]


def test_named_stream_that_never_existed_is_still_an_error(synced: SyncedSource) -> None:
    with pytest.raises(ConfigurationError, match="stream 'orders' does not exist"):
        ShardSync(synced.client, synced.coordinator).run(["orders"], forced=True)


# Accounts


class RecordingClient(InProcessClient):
    """Records how calls name the stream."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append((operation, request))
        return super()._call(operation, request)


def shared(owner: InProcessClient, stream: str, *accounts: str) -> str:
    """Create a stream that others may read; return its ARN."""
    owner.create_stream(StreamName=stream, ShardCount=2)
    arn: str = owner.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]
    reads = ["DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"]
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": list(accounts)},
        "Action": [f"kinesis:{name}" for name in reads],
        "Resource": arn,
    }
    owner.put_resource_policy(ResourceARN=arn, Policy=str({"Statement": [statement]}).replace("'", '"'))
    return arn


def test_stream_of_another_account_is_synced_by_its_arn(synced: SyncedSource) -> None:
    other = Engine(synced.clock, account="111111111111")
    connect(synced.engine, other)
    arn = shared(InProcessClient(other), "orders", synced.engine.account)
    client = synced.client = RecordingClient(synced.engine)

    sync(synced, arn)

    assert list(synced.leases("orders")) == [shard_id(0), shard_id(1)]
    assert all(key.partition_key.startswith("orders:") for key in synced.leases("orders").values())
    assert [request for _, request in client.requests if request.get("StreamName") == "orders"] == []
    assert other.calls["DescribeStreamSummary"] >= 1 and other.calls["ListShards"] >= 1


def test_way_of_naming_changes_no_partition(synced: SyncedSource) -> None:
    summary = synced.client.describe_stream_summary(StreamName="views")["StreamDescriptionSummary"]
    synced.sync("views")
    before = synced.leases("views")

    again = synced.sync(summary["StreamARN"])

    assert (again.stream, again.created, synced.leases("views")) == ("views", [], before)


def test_stream_of_the_name_in_another_account_is_refused(synced: SyncedSource) -> None:
    other = Engine(synced.clock, account="111111111111")
    connect(synced.engine, other)
    arn = shared(InProcessClient(other), "views", synced.engine.account)
    synced.sync("views")
    before = synced.leases("views")

    with pytest.raises(
        ConfigurationError, match=r"'views' of source 'source' belongs to account 000000000000 so far, .* 111111111111"
    ):
        synced.sync(arn)

    assert synced.leases("views") == before


def test_unshared_stream_of_another_account_is_denied(synced: SyncedSource) -> None:
    other = Engine(synced.clock, account="111111111111")
    connect(synced.engine, other)
    arn = shared(InProcessClient(other), "orders", "222222222222")

    with pytest.raises(ConfigurationError, match=f"'{arn}' .*access denied: .*check .*the stream's resource policy"):
        synced.sync(arn)
