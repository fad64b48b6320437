"""Shard sync decides which shards get a lease: tables of cases."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.leases import NewLease, leases_to_create
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardKey, parse_partition_key, partition_key
from airflow_provider_coordination.sources.kinesis.shards import Shard
from tests.support.shard_graphs import GRAPH_A, GRAPH_B, shard

UNASSIGNED, ASSIGNED, CLOSED, COMPLETED = PartitionStatus


def created(shards: list[Shard], existing: dict[int, PartitionStatus]) -> str:
    leases = leases_to_create(shards, {str(name): status for name, status in existing.items()})
    return " ".join(lease.shard.shard_id for lease in leases)


def all_in(status: PartitionStatus, *names: int) -> dict[int, PartitionStatus]:
    return dict.fromkeys(names, status)


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        # An empty table: the roots.
        ({}, "0 1 2 3 4 5"),
        # As in the Kinesis Client Library at TRIM_HORIZON.
        (all_in(ASSIGNED, 3, 4, 5), "0 1 2"),
        (all_in(ASSIGNED, 2, 6), "3 4 5"),
        (all_in(ASSIGNED, 4, 5, 6, 7), ""),
        (all_in(ASSIGNED, *range(8)), ""),
        (all_in(ASSIGNED, 0, 1, 4, 7, 9, 10), ""),
        (all_in(ASSIGNED, 6, 7), "4 5"),
        (all_in(ASSIGNED, 8), "4 5"),
        (all_in(ASSIGNED, 0), "1 2 3 4 5"),
        (all_in(ASSIGNED, 5), "0 1 2 3 4"),
        (all_in(ASSIGNED, 0, 2, 4, 5), "1 3"),
        # The library makes leases for 0 and 1 here. 7 is leased, so 2 and 3 are finished; 0 and 1 are not.
        (all_in(ASSIGNED, 4, 5, 7), "0 1"),
        # The library reads 5 once more although it is finished: 9 could only start after it. Ours starts 10.
        (all_in(ASSIGNED, 9), "0 1 2 3 4 10"),
        (all_in(ASSIGNED, 4, 8, 9), "10"),
        (all_in(ASSIGNED, 4, 9, 10), "0 1 2 3"),
        # The library fills the hole 0 only; 6 waits for it here as there, and so does 8 for 6.
        (all_in(ASSIGNED, 1, 2, 3, 4, 5, 7, 9, 10), "0"),
        # Children come when every parent is completed, and not before.
        (all_in(COMPLETED, 0, 1) | all_in(ASSIGNED, 2, 3, 4, 5), "6"),
        (all_in(COMPLETED, 0, 2) | all_in(ASSIGNED, 1, 3, 4, 5), ""),
        (all_in(COMPLETED, 0, 1, 2, 3, 5, 6) | all_in(ASSIGNED, 4), "7 10 9"),
        (all_in(COMPLETED, 0, 1, 2, 3, 5, 6) | all_in(ASSIGNED, 4, 7), "10 9"),
        (all_in(COMPLETED, 0, 1, 2, 3, 5, 6, 7) | all_in(ASSIGNED, 4), "10 8 9"),
        # A parent that was given up or closed is not finished, whatever its shard is.
        (all_in(COMPLETED, 0) | all_in(UNASSIGNED, 1) | all_in(ASSIGNED, 2, 3, 4, 5), ""),
        (all_in(COMPLETED, 0) | all_in(CLOSED, 1) | all_in(ASSIGNED, 2, 3, 4, 5), ""),
        # Everything is worked off and stays so.
        (all_in(COMPLETED, *range(11)), ""),
        # Cleaned-up leases of finished parents do not come back.
        (all_in(COMPLETED, 6, 7) | all_in(ASSIGNED, 4, 5, 8), ""),
        # Leases of shards that are not listed any more say nothing about those that are.
        (all_in(COMPLETED, 99), "0 1 2 3 4 5"),
    ],
)
def test_graph_a_creates_expected_leases(existing: dict[int, PartitionStatus], expected: str) -> None:
    assert created(GRAPH_A, existing) == expected


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        ({}, "0 1"),
        (all_in(ASSIGNED, 5), ""),
        # The library would read 0 and 1 again, and says itself that 7 is what it wants.
        (all_in(ASSIGNED, 6), "7"),
        (all_in(ASSIGNED, 3), "4"),
        (all_in(ASSIGNED, 9), "10"),
        (all_in(COMPLETED, 6), "7"),
        (all_in(COMPLETED, 6, 7), "8"),
    ],
)
def test_graph_b_creates_expected_leases(existing: dict[int, PartitionStatus], expected: str) -> None:
    assert created(GRAPH_B, existing) == expected


@pytest.mark.parametrize(
    ("shards", "existing", "expected"),
    [
        pytest.param([], {}, "", id="nothing is listed"),
        pytest.param([shard(6, 103, None, 0, 1)], {}, "6", id="its parents are trimmed"),
        pytest.param(
            [shard(1, 11, 102), shard(6, 103, None, 0, 1)],
            {},
            "1",
            id="one of its parents is trimmed, one is not",
        ),
        pytest.param(
            [shard(1, 11, 102), shard(6, 103, None, 0, 1)],
            all_in(COMPLETED, 1),
            "6",
            id="the listed one is finished",
        ),
        pytest.param([shard(0, 11, None), shard(1, 50, None, 0)], {}, "0", id="the child of an open parent waits"),
        pytest.param(
            [shard(0, 11, None), shard(1, 50, None, 0), shard(2, 50, None, 0)],
            all_in(ASSIGNED, 1),
            "",
            id="it waits although the parent counts as finished, since its sibling is leased",
        ),
        pytest.param(
            [shard(6, 103, None, 0)], all_in(CLOSED, 0), "", id="its parent is gone, and its lease is not finished"
        ),
        pytest.param(
            [shard(6, 103, None, 0)], all_in(COMPLETED, 0), "6", id="its parent is gone, and its lease is finished"
        ),
        pytest.param([shard(8, 9, None), shard(10, 9, None), shard(1, 10, None)], {}, "10 8 1", id="ties by name"),
        pytest.param([shard(1, 1000, None), shard(2, 999, None)], {}, "2 1", id="numbers are no texts"),
        pytest.param([shard(0, 1, None), shard(0, 1, None)], {}, "0", id="listed twice"),
    ],
)
def test_other_listings_create_expected_leases(
    shards: list[Shard], existing: dict[int, PartitionStatus], expected: str
) -> None:
    assert created(shards, existing) == expected


def test_listing_order_does_not_matter() -> None:
    assert leases_to_create(GRAPH_A[::-1], {}) == leases_to_create(GRAPH_A, {})


def test_stream_resharded_thousands_of_times_is_decided() -> None:
    chain = [shard(name, name, name + 1, name - 1) for name in range(1, 5_000)]

    assert leases_to_create(chain, {"4999": ASSIGNED}) == []
    assert leases_to_create(chain, {"1": ASSIGNED}, LATEST) == []


def test_rule_leases_every_shard_once_parents_first() -> None:
    statuses: dict[str, PartitionStatus] = {}
    order: list[str] = []
    while due := leases_to_create(GRAPH_A, statuses):
        order += [lease.shard.shard_id for lease in due]
        statuses |= {lease.shard.shard_id: COMPLETED for lease in due}

    assert order == ["0", "1", "2", "3", "4", "5", "6", "7", "10", "9", "8"]


AT = "AT_TIMESTAMP:2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("position", [TRIM_HORIZON, AT, LATEST])
def test_children_of_finished_parents_begin_at_trim_horizon(position: str) -> None:
    existing = {"0": COMPLETED, "1": COMPLETED, **dict.fromkeys("2345", ASSIGNED)}

    assert leases_to_create(GRAPH_A, existing, position) == [NewLease(GRAPH_A[6], TRIM_HORIZON)]


def test_missing_shard_begins_at_the_position_of_its_source() -> None:
    assert {lease.checkpoint for lease in leases_to_create(GRAPH_A, {"3": ASSIGNED}, AT)} == {AT}


def test_gap_below_a_passed_shard_is_closed_at_latest() -> None:
    # The library waits for the end of 1 here, which never leases 3: its other child 5 is there, so 3 counts as read.
    graph = [
        shard(1, 1, 10),
        shard(2, 1, 10),
        shard(3, 11, 20, 1, 2),
        shard(4, 21, None, 3),
        shard(5, 21, None, 3),
    ]
    leases = leases_to_create(graph, {"1": ASSIGNED, "5": ASSIGNED}, LATEST)

    assert leases == [NewLease(graph[3], LATEST)]


def test_partition_key_names_stream_epoch_and_shard() -> None:
    key = partition_key("clicks", 1_700_000_000, "shardId-000000000003")

    assert key == "clicks:1700000000:shardId-000000000003"
    assert parse_partition_key(key) == ShardKey("clicks", 1_700_000_000, "shardId-000000000003")


@pytest.mark.parametrize(
    "text",
    ["", "clicks", "clicks:1", "clicks::s", ":1:s", "clicks:-1:s", "clicks:0:s", "c:x:s", "c:1:", "c:1:s:t"],
)
def test_invalid_partition_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not <stream>"):
        parse_partition_key(text)
