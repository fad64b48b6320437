"""Leases of the Kinesis Client Library become partitions: a table of cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.kcl import (
    CheckpointRecord,
    ImportOutcome,
    ImportPlan,
    ShardPlan,
    checkpoints_to_look_up,
    plan_import,
)
from airflow_provider_coordination.sources.kinesis.kcl_table import (
    KclLease,
    KclStream,
    LeaseTable,
    UnreadableItem,
)
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, ShardRange
from airflow_provider_coordination.sources.kinesis.shards import Shard, StreamDescription
from tests.support.batches import HOUR, NOON

EPOCH = 1_767_268_800
CLICKS = StreamDescription(name="clicks", creation_epoch=EPOCH, open_shards=1, retention_hours=24)
WHOLE = CheckpointRecord(user_records=1)


def shard(name: str, *parents: str, start: int = 100, end: int | None = None, keys: tuple[int, int] = (0, 9)) -> Shard:
    return Shard(
        shard_id=name,
        parent_shard_ids=parents,
        starting_hash_key=str(keys[0]),
        ending_hash_key=str(keys[1]),
        starting_sequence_number=str(start),
        ending_sequence_number=None if end is None else str(end),
    )


def lease(name: str, checkpoint: str, **fields: Any) -> KclLease:
    return KclLease(lease_key=name, shard_id=name, checkpoint=checkpoint, **fields)


def lease_of(name: str, checkpoint: str, *, account: str = "1", stream: str = "clicks", epoch: int = EPOCH) -> KclLease:
    return KclLease(
        lease_key=f"{account}:{stream}:{epoch}:{name}",
        shard_id=name,
        checkpoint=checkpoint,
        stream=KclStream(account, stream, epoch),
    )


def plan(
    leases: list[KclLease],
    shards: list[Shard],
    records: Mapping[str, CheckpointRecord] | None = None,
    *,
    unreadable: tuple[UnreadableItem, ...] = (),
    **options: Any,
) -> ImportPlan:
    table = LeaseTable(tuple(leases), unreadable)
    looked_up = checkpoints_to_look_up(table, CLICKS, shards, account=options.get("account"))
    found = {name: (records or {}).get(name, WHOLE) for name in looked_up}
    return plan_import(table, CLICKS, shards, found, now=NOON, **options)


def outcomes(planned: ImportPlan) -> dict[str, ImportOutcome]:
    return {each.shard_id: each.outcome for each in planned.shards}


def of(planned: ImportPlan, name: str) -> ShardPlan:
    [found] = [each for each in planned.shards if each.shard_id == name]
    return found


def progress_of(planned: ImportPlan, name: str) -> ShardProgress:
    progress = of(planned, name).progress
    assert progress is not None
    return progress


# Checkpoints


def test_sequence_number_is_the_checkpoint() -> None:
    planned = plan([lease("s0", "150")], [shard("s0")])

    assert of(planned, "s0") == ShardPlan(
        shard_id="s0",
        kcl_checkpoint="150",
        outcome=ImportOutcome.PARTITION,
        progress=ShardProgress(
            stream="clicks",
            shard_id="s0",
            parent_shard_ids=(),
            starting_hash_key="0",
            ending_hash_key="9",
            checkpoint="150",
        ),
    )


def test_unread_shard_is_read_from_its_earliest_record() -> None:
    planned = plan([lease("s0", "TRIM_HORIZON")], [shard("s0")])

    assert of(planned, "s0").outcome is ImportOutcome.PARTITION
    assert progress_of(planned, "s0").checkpoint == "TRIM_HORIZON"


def test_finished_shard_is_completed_and_names_its_children() -> None:
    shards = [
        shard("s0", end=200),
        shard("s1", "s0", start=201, keys=(0, 4)),
        shard("s2", "s0", start=201, keys=(5, 9)),
    ]
    planned = plan([lease("s0", "SHARD_END"), lease("s1", "TRIM_HORIZON"), lease("s2", "250")], shards)

    assert outcomes(planned) == {
        "s0": ImportOutcome.COMPLETED,
        "s1": ImportOutcome.PARTITION,
        "s2": ImportOutcome.PARTITION,
    }
    finished = progress_of(planned, "s0")
    assert finished.is_finished and finished.checkpoint == "200"
    assert finished.children == (
        ShardRange(shard_id="s1", parent_shard_ids=("s0",), starting_hash_key="0", ending_hash_key="4"),
        ShardRange(shard_id="s2", parent_shard_ids=("s0",), starting_hash_key="5", ending_hash_key="9"),
    )


def test_shard_at_latest_starts_at_the_import_instant() -> None:
    planned = plan([lease("s0", "LATEST"), lease("s1", "150")], [shard("s0"), shard("s1")])

    assert of(planned, "s0").outcome is ImportOutcome.PARTITION
    assert progress_of(planned, "s0").checkpoint == "AT_TIMESTAMP:2026-01-01T12:00:00.000000Z"
    assert progress_of(planned, "s0").delivered_until == NOON
    assert "records that arrived earlier and are not checkpointed are not read" in of(planned, "s0").note
    assert planned.from_now_on == (of(planned, "s0"),)


def test_shard_at_an_unstored_timestamp_is_refused() -> None:
    refused = of(plan([lease("s0", "AT_TIMESTAMP")], [shard("s0")]), "s0")

    assert refused.outcome is ImportOutcome.REFUSED
    assert "--at-timestamp" in refused.remedy and "--unread-from-trim-horizon" in refused.remedy


@pytest.mark.parametrize(("hours", "noticed"), [(1, True), (24, False)])
def test_shard_starts_at_the_timestamp_of_the_user(hours: int, noticed: bool) -> None:
    instant = NOON - hours * HOUR
    planned = plan([lease("s0", "AT_TIMESTAMP")], [shard("s0")], unread_since=instant)

    assert of(planned, "s0").outcome is ImportOutcome.PARTITION
    assert progress_of(planned, "s0").checkpoint == f"AT_TIMESTAMP:{instant:%Y-%m-%dT%H}:00:00.000000Z"
    assert progress_of(planned, "s0").delivered_until == (instant if noticed else None)
    assert planned.from_now_on == ()


@pytest.mark.parametrize("checkpoint", ["LATEST", "AT_TIMESTAMP"])
def test_shard_starts_at_its_earliest_record_on_request(checkpoint: str) -> None:
    planned = plan([lease("s0", checkpoint)], [shard("s0")], unread_from_trim_horizon=True)

    assert of(planned, "s0").outcome is ImportOutcome.PARTITION
    assert progress_of(planned, "s0").checkpoint == "TRIM_HORIZON"
    assert checkpoint in of(planned, "s0").note
    assert planned.from_now_on == ()


def test_prepared_checkpoint_is_reported_and_ignored() -> None:
    planned = plan([lease("s0", "150", pending_checkpoint="160")], [shard("s0")])

    assert progress_of(planned, "s0").checkpoint == "150"
    assert "160 is ignored" in of(planned, "s0").note


# Checkpoints inside an aggregated record


@pytest.mark.parametrize(
    ("sub_sequence_number", "user_records", "checkpoint"),
    [
        (0, 1, "150"),
        (0, 2, "150:0"),
        (3, 5, "150:3"),
        (4, 5, "150"),
        (7, 5, "150"),
        (0, None, "150"),
        (3, None, "150"),
    ],
)
def test_checkpoint_stays_inside_a_partly_processed_record(
    sub_sequence_number: int, user_records: int | None, checkpoint: str
) -> None:
    planned = plan(
        [lease("s0", "150", sub_sequence_number=sub_sequence_number)],
        [shard("s0")],
        {"s0": CheckpointRecord(user_records=user_records)},
    )

    assert of(planned, "s0").outcome is ImportOutcome.PARTITION
    assert progress_of(planned, "s0").checkpoint == checkpoint


def test_checkpoint_inside_an_aggregate_names_the_processed_part() -> None:
    planned = plan([lease("s0", "150", sub_sequence_number=3)], [shard("s0")], {"s0": CheckpointRecord(user_records=5)})

    assert of(planned, "s0").kcl_checkpoint == "150/3"
    assert "4 of its 5 user records are processed" in of(planned, "s0").note
    assert planned.refused == ()


def test_unreadable_record_refuses_the_shard() -> None:
    planned = plan([lease("s0", "150")], [shard("s0")], {"s0": CheckpointRecord(problem="throttled")})

    assert of(planned, "s0").outcome is ImportOutcome.REFUSED and "throttled" in of(planned, "s0").note


# Families of shards


@pytest.mark.parametrize("parent", ["150", "TRIM_HORIZON", "LATEST"])
def test_unread_child_waits_for_its_unfinished_parent(parent: str) -> None:
    shards = [shard("s0", end=200), shard("s1", "s0", start=201)]
    planned = plan([lease("s0", parent), lease("s1", "TRIM_HORIZON")], shards)

    assert of(planned, "s1").outcome is ImportOutcome.LATER and of(planned, "s1").progress is None
    assert "s0" in of(planned, "s1").note


def test_grandchild_waits_for_a_waiting_child() -> None:
    shards = [shard("s0", end=200), shard("s1", "s0", start=201, end=300), shard("s2", "s1", start=301)]
    planned = plan([lease("s0", "150"), lease("s1", "TRIM_HORIZON"), lease("s2", "TRIM_HORIZON")], shards)

    assert outcomes(planned) == {"s0": ImportOutcome.PARTITION, "s1": ImportOutcome.LATER, "s2": ImportOutcome.LATER}


def test_merge_child_waits_for_the_remaining_parent() -> None:
    shards = [shard("s0", end=200), shard("s1", end=200), shard("s2", "s0", "s1", start=201)]
    leases = [lease("s0", "SHARD_END"), lease("s1", "150"), lease("s2", "TRIM_HORIZON")]

    assert outcomes(plan(leases, shards)) == {
        "s0": ImportOutcome.COMPLETED,
        "s1": ImportOutcome.PARTITION,
        "s2": ImportOutcome.LATER,
    }


def test_begun_child_is_imported_despite_its_parent() -> None:
    shards = [shard("s0", end=200), shard("s1", "s0", start=201)]

    planned = plan([lease("s0", "150"), lease("s1", "250")], shards)

    assert outcomes(planned) == {"s0": ImportOutcome.PARTITION, "s1": ImportOutcome.PARTITION}


def test_listed_ancestors_without_leases_are_completed() -> None:
    shards = [shard("s0", end=200), shard("s1", "s0", start=201, end=300), shard("s2", "s1", start=301)]
    planned = plan([lease("s2", "350")], shards)

    assert outcomes(planned) == {
        "s0": ImportOutcome.COMPLETED,
        "s1": ImportOutcome.COMPLETED,
        "s2": ImportOutcome.PARTITION,
    }
    assert progress_of(planned, "s1").is_finished


def test_unseen_shard_is_left_to_shard_sync() -> None:
    shards = [shard("s0", end=200), shard("s1", "s0", start=201)]
    planned = plan([lease("s0", "150")], shards)

    assert of(planned, "s1").outcome is ImportOutcome.LATER and of(planned, "s1").kcl_checkpoint == "no lease"


def test_version_1_takes_parents_and_hash_keys_from_listing() -> None:
    shards = [shard("s0", end=200), shard("s1", "s0", start=201, keys=(3, 7))]
    planned = plan([lease("s0", "SHARD_END"), lease("s1", "250")], shards)

    progress = progress_of(planned, "s1")
    assert (progress.parent_shard_ids, progress.starting_hash_key, progress.ending_hash_key) == (("s0",), "3", "7")


def test_lease_supplies_parents_missing_from_the_listing() -> None:
    planned = plan([lease("s1", "150", parent_shard_ids=("s0",))], [shard("s1")])

    assert progress_of(planned, "s1").parent_shard_ids == ("s0",)


# Shards that are gone


def test_finished_shard_missing_from_the_stream_is_completed() -> None:
    gone = lease("s0", "SHARD_END", hash_key_range=(0, 9), child_shard_ids=("s1", "s9"))
    planned = plan([gone, lease("s1", "250")], [shard("s1", "s0", start=201)])

    progress = progress_of(planned, "s0")
    assert of(planned, "s0").outcome is ImportOutcome.COMPLETED and progress.is_finished
    assert [child.shard_id for child in progress.children] == ["s1"]


def test_finished_missing_shard_without_hash_keys_is_not_needed() -> None:
    planned = plan([lease("s0", "SHARD_END"), lease("s1", "250")], [shard("s1", "s0", start=201)])

    assert of(planned, "s0").outcome is ImportOutcome.NOTHING


@pytest.mark.parametrize("checkpoint", ["150", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
def test_unfinished_missing_shard_is_lost(checkpoint: str) -> None:
    planned = plan([lease("s0", checkpoint), lease("s1", "TRIM_HORIZON")], [shard("s1", "s0", start=201)])

    lost = of(planned, "s0")
    assert lost.outcome is ImportOutcome.LOST and lost.is_refused
    assert "unread records are gone" in lost.note
    assert of(planned, "s1").outcome is ImportOutcome.PARTITION  # nothing is left to wait for


# Leases of another stream


@pytest.mark.parametrize(
    ("contradicting", "listed", "note"),
    [
        (lease("s0", "150", hash_key_range=(0, 4)), shard("s0"), "hash keys 0-4, the stream 0-9"),
        (lease("s0", "150", parent_shard_ids=("s7",)), shard("s0", "s8"), "parents s7, the stream s8"),
        (lease("s0", "SHARD_END"), shard("s0"), "has ended, but the shard is open"),
        (lease("s0", "50"), shard("s0"), "before the first sequence number of the shard, 100"),
    ],
)
def test_lease_contradicting_its_shard_is_refused(contradicting: KclLease, listed: Shard, note: str) -> None:
    refused = of(plan([contradicting], [listed]), "s0")

    assert refused.outcome is ImportOutcome.REFUSED
    assert note in refused.note and "earlier stream of the same name" in refused.remedy


def test_multi_stream_table_gives_only_leases_of_the_stream() -> None:
    planned = plan([lease_of("s0", "150"), lease_of("s0", "160", stream="views")], [shard("s0")])

    assert outcomes(planned) == {"s0": ImportOutcome.PARTITION}
    assert progress_of(planned, "s0").checkpoint == "150"
    assert planned.other_streams == 1


def test_leases_of_an_earlier_stream_are_refused() -> None:
    planned = plan([lease_of("s0", "150", epoch=EPOCH - 60)], [shard("s0")])

    refused = of(planned, f"1:clicks:{EPOCH - 60}:s0")
    assert refused.outcome is ImportOutcome.REFUSED and refused.progress is None
    assert "an earlier stream of this name" in refused.note
    assert of(planned, "s0").outcome is ImportOutcome.LATER


def test_ambiguous_stream_name_requires_the_account() -> None:
    leases = [lease_of("s0", "150"), lease_of("s0", "160", account="2")]

    with pytest.raises(ConfigurationError, match="in the accounts 1, 2"):
        plan(leases, [shard("s0")])
    assert progress_of(plan(leases, [shard("s0")], account="2"), "s0").checkpoint == "160"


def test_single_stream_leases_in_a_multi_stream_table_are_refused() -> None:
    planned = plan([lease_of("s0", "150"), lease("s0", "120"), lease("s1", "130")], [shard("s0"), shard("s1")])

    assert [(p.shard_id, p.outcome) for p in planned.shards if p.kcl_checkpoint != "150"] == [
        ("s0", ImportOutcome.REFUSED),
        ("s1", ImportOutcome.REFUSED),
    ]
    assert [p.progress is None for p in planned.refused] == [True, False]  # s0 has its partition already


# Damaged leases


def test_damaged_lease_refuses_only_its_shard() -> None:
    shards = [shard("s0", end=200), shard("s1", "s0", start=201), shard("s2")]
    planned = plan(
        [lease("s1", "TRIM_HORIZON"), lease("s2", "150")],
        shards,
        unreadable=(UnreadableItem("s0", "checkpoint is missing"),),
    )

    assert outcomes(planned) == {"s0": ImportOutcome.REFUSED, "s1": ImportOutcome.LATER, "s2": ImportOutcome.PARTITION}
    assert "checkpoint is missing" in of(planned, "s0").note


def test_damaged_lease_of_another_stream_is_ignored() -> None:
    planned = plan(
        [lease_of("s0", "150")], [shard("s0")], unreadable=(UnreadableItem("1:views:5:s0", "checkpoint is missing"),)
    )

    assert outcomes(planned) == {"s0": ImportOutcome.PARTITION} and planned.other_streams == 1
