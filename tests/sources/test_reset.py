"""Positions set by hand are validated, and applied to partitions, streams and sources."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    CoordinationError,
    PartitionUpdateError,
    ProgressError,
)
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.items import FailedItem, PartitionProgress
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, partition_key
from airflow_provider_coordination.sources.kinesis.reset import delivered_until, position_of
from airflow_provider_coordination.sources.kinesis.shards import Shard, describe_stream, list_shards
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from airflow_provider_coordination.sources.reset import Resets, check_progress
from airflow_provider_coordination.sources.reset_targets import ResetAction, ResetPlan, ResetStep, Target, parse_target
from tests.coordination.fleet import Fleet
from tests.support.batches import NOON, a_batch, begin_delivery
from tests.support.items import named
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient

# What a person may say


@pytest.mark.parametrize(
    ("to", "position"),
    [
        ("earliest", "TRIM_HORIZON"),
        (" Earliest ", "TRIM_HORIZON"),
        ("TRIM_HORIZON", "TRIM_HORIZON"),
        ("latest", "AT_TIMESTAMP:2026-01-01T12:00:00.000000Z"),
        ("LATEST", "AT_TIMESTAMP:2026-01-01T12:00:00.000000Z"),
        ("2026-01-01T06:00:00-05:00", "AT_TIMESTAMP:2026-01-01T11:00:00.000000Z"),
        (datetime(2026, 1, 1, 6, tzinfo=timezone(timedelta(hours=-5))), "AT_TIMESTAMP:2026-01-01T11:00:00.000000Z"),
        ("AT_TIMESTAMP:2026-01-01T11:00:00.000000Z", "AT_TIMESTAMP:2026-01-01T11:00:00.000000Z"),
        ("1970-01-01T00:00:00Z", "AT_TIMESTAMP:1970-01-01T00:00:00.000000Z"),
        ("49590338271490256608559692538361571095921575989136588898",) * 2,
        ("20260101", "20260101"),
        ("150:3", "150:3"),
    ],
)
def test_position_may_be_words_instant_or_number(to: Any, position: str) -> None:
    assert str(position_of(parse_target(to, NOON))) == position


@pytest.mark.parametrize("to", ["", "now", "2026-01-01", "2026-01-01T00:00:00", "-5", "1.5", "SHARD_END", "150:"])
def test_invalid_position_is_refused_with_examples(to: str) -> None:
    with pytest.raises(ConfigurationError, match="is neither 'earliest', 'latest', an instant with a time zone"):
        position_of(parse_target(to, NOON))


def test_instant_before_1970_or_in_the_future_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'1969-12-31T23:59:59Z' lies before 1970; give 'earliest'"):
        parse_target("1969-12-31T23:59:59Z", NOON)
    with pytest.raises(ConfigurationError, match="lies before 1970"):
        parse_target("0001-01-01T00:00:00+14:00", NOON)
    with pytest.raises(ConfigurationError, match="lies in the future"):
        parse_target("9999-12-31T23:59:59-14:00", NOON)
    with pytest.raises(ConfigurationError, match=r"in the future, now is 2026-01-01T12:00:00.000000Z; give 'latest'"):
        parse_target("2026-01-01T12:00:01Z", NOON)


@pytest.mark.parametrize(
    ("to", "until"),
    [("latest", NOON), (NOON - timedelta(hours=23), NOON - timedelta(hours=23)), (NOON - timedelta(hours=24), None)],
)
def test_loss_after_an_unexpired_position_is_noticed(to: Any, until: datetime | None) -> None:
    target = parse_target(to, NOON)
    assert delivered_until(position_of(target), target) == until


# A stream, its leases, and a person


class Source:
    """The source `clicks`: a Kinesis in this process, leases of its shards, and a worker of the source."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.clock = self.fleet.clock
        self.engine = Engine(VirtualClock(self.clock.now()))
        self.kinesis = InProcessClient(self.engine)
        self.kinesis.create_stream(StreamName="s", ShardCount=1)
        self.worker = self.fleet.owner("worker")
        self.resets = Resets(AcknowledgmentSets(self.fleet.owner("person"), SourceBatches()))

    @property
    def shards(self) -> list[Shard]:
        return list_shards(self.kinesis, "s")

    def key(self, shard: Shard | str) -> str:
        name = shard if isinstance(shard, str) else shard.shard_id
        return partition_key("s", describe_stream(self.kinesis, "s").creation_epoch, name)

    def split(self) -> None:
        shard = self.shards[-1]
        middle = (int(shard.starting_hash_key) + int(shard.ending_hash_key)) // 2
        self.kinesis.split_shard(StreamName="s", ShardToSplit=shard.shard_id, NewStartingHashKey=str(middle))

    def lease(self, shard: Shard, *, finished: bool = False, **progress: Any) -> str:
        key = self.key(shard)
        state = replace(ShardProgress.first("s", shard), **progress)
        self.worker.create_partitions({key: state.to_mapping()})
        if finished:
            self.worker.store.transact(update=[self[key].completed(self.clock.now())])
        return key

    def __getitem__(self, key: str) -> Partition:
        partition = self.worker.view.get(key)
        assert partition is not None
        return partition

    def progress(self, key: str) -> ShardProgress:
        return ShardProgress.from_mapping(self[key].progress)

    def target(self, to: Any) -> Target:
        return parse_target(to, self.clock.now())

    def plan(self, *keys: str, to: Any = "earliest") -> ResetPlan:
        partitions = [self[key] for key in keys]
        return self.resets.plan_partitions(partitions, self.target(to), lambda kind: StreamService(self.kinesis))

    def plan_stream(self, to: Any = "earliest", name: str = "s") -> ResetPlan:
        return self.resets.plan_group(name, self.target(to), lambda kind: StreamService(self.kinesis))

    def do(self, plan: ResetPlan) -> list[tuple[ResetStep, Partition | CoordinationError]]:
        return list(self.resets.apply(plan))


@pytest.fixture
def source() -> Source:
    return Source()


def test_shard_resumes_after_a_sequence_number_in_a_new_epoch(source: Source) -> None:
    [shard] = source.shards
    number = str(int(shard.starting_sequence_number) + 7)
    key = source.lease(shard, checkpoint=number + "0", is_ended=True, finished=True)

    source.do(source.plan(key, to=number))

    progress = source.progress(key)
    assert (progress.checkpoint, progress.landed, progress.is_ended) == (number, (), False)
    assert progress.epoch >= int(source.clock.now().timestamp())
    assert source[key].status is PartitionStatus.UNASSIGNED


@pytest.mark.parametrize("to", ["earliest", "latest", "7"])
def test_records_expired_after_a_reset_count_as_lost(source: Source, to: str) -> None:
    key = source.lease(source.shards[0])
    source.do(source.resets.plan_partitions([source[key]], source.target(to)))

    assert source.progress(key).owed_from == source.clock.now()


def test_each_reset_within_a_second_has_its_own_epoch(source: Source) -> None:
    key = source.lease(source.shards[0])
    epochs = []
    for _ in range(3):
        source.do(source.plan(key))
        epochs.append(source.progress(key).epoch)

    assert epochs[0] < epochs[1] < epochs[2]


def test_outdated_reset_plan_gets_a_later_epoch(source: Source) -> None:
    key = source.lease(source.shards[0])
    early = source.plan(key, to=source.clock.now() - timedelta(hours=1))
    source.do(source.plan(key))
    first = source.progress(key).epoch

    source.do(early)

    assert source.progress(key).epoch > first


def test_sequence_number_belongs_to_one_shard(source: Source) -> None:
    source.split()
    keys = [source.lease(shard) for shard in source.shards]

    with pytest.raises(ConfigurationError, match="position '7' belongs to one partition; got it for 3 partitions"):
        source.plan(*keys, to="7")
    with pytest.raises(ConfigurationError, match="position '7' belongs to one partition, not to 's'"):
        source.plan_stream("7")


@pytest.mark.parametrize("number", [lambda s: int(s.starting_sequence_number) - 1, lambda s: 10**60])
def test_sequence_number_of_another_shard_is_refused(source: Source, number: Callable[[Shard], int]) -> None:
    source.split()
    closed = source.shards[0]
    key = source.lease(closed)

    with pytest.raises(ConfigurationError, match=f"is not in shard '{closed.shard_id}'.*begin at .* and end at"):
        source.plan(key, to=str(number(closed)))


def test_stream_is_reread_parents_first(source: Source) -> None:
    source.split()
    parent, *children = source.shards
    parent_key = source.lease(parent, checkpoint="5", is_ended=True, finished=True, epoch=3)
    child_keys = [source.lease(child, checkpoint="7") for child in children]

    done = source.do(source.plan_stream())

    assert [(str(step.action), step.partition.partition_key) for step, _ in done] == [
        ("reset", parent_key),
        *(("removed", key) for key in child_keys),
    ]
    assert source.progress(parent_key).checkpoint == "TRIM_HORIZON"
    assert [source.worker.view.get(key) for key in child_keys] == [None, None]


def test_cleaned_up_shard_is_leased_again(source: Source) -> None:
    """Scenario 24 of Druid: where nothing is stored, what a reset says is stored as it is given."""
    source.split()
    parent, *children = source.shards
    for child in children:
        source.lease(child)
    moment = source.clock.now() - timedelta(minutes=1)

    source.do(source.plan_stream(moment))

    assert source.progress(source.key(parent)).checkpoint == "AT_TIMESTAMP:2025-12-31T23:59:00.000000Z"
    assert source.progress(source.key(parent)).epoch > 0


def test_fully_expired_instant_becomes_trim_horizon_and_is_reported(source: Source) -> None:
    key = source.lease(source.shards[0], checkpoint="5")
    plan = source.plan_stream(source.clock.now() - timedelta(hours=25))

    source.do(plan)

    assert ["keeps records for 24 hours" in warning for warning in plan.warnings] == [True]
    assert source.progress(key).checkpoint == "TRIM_HORIZON"


@pytest.mark.parametrize("which", ["shard", "stream"])
def test_fast_local_clock_skips_no_records(source: Source, which: str) -> None:
    key = source.lease(source.shards[0], checkpoint="5")
    source.clock.advance(30)

    source.do(source.plan_stream("latest") if which == "stream" else source.plan(key, to="latest"))

    assert source.progress(key).checkpoint == "AT_TIMESTAMP:2026-01-01T00:00:00.000000Z"


def test_leases_of_an_earlier_stream_stay(source: Source) -> None:
    key = source.lease(source.shards[0])
    earlier = partition_key("s", 5, "shardId-000000000000")
    source.worker.create_partitions({earlier: source[key].progress})

    plan = source.plan_stream()

    assert plan.left == {earlier: "its stream was deleted and created again"}
    assert [step.partition.partition_key for step in plan.steps] == [key]


def test_stream_of_another_source_is_refused_with_alternatives(source: Source) -> None:
    """Scenario 26 of Druid: a reset that names another stream changes nothing."""
    with pytest.raises(ConfigurationError, match="source 'clicks' has no part 's'; it has no parts"):
        source.plan_stream()
    source.lease(source.shards[0])
    with pytest.raises(ConfigurationError, match="no part 'views'; it has 's'"):
        source.plan_stream(name="views")


def test_whole_source_is_reread_for_any_kind_of_partition(source: Source) -> None:
    key = source.lease(source.shards[0], checkpoint="5")
    source.worker.create_partitions({"table:1:2": {"rows_done": 4}})

    source.do(source.resets.plan_source(source.target("earliest"), lambda kind: StreamService(source.kinesis)))

    assert (source["table:1:2"].progress, source.progress(key).checkpoint) == ({}, "TRIM_HORIZON")


def test_other_partitions_can_only_restart_from_the_beginning(source: Source) -> None:
    source.worker.create_partitions({"p": {"rows_done": 4}})

    with pytest.raises(ProgressError, match="'p' is read as a whole and has no position 'latest'; reset it"):
        source.resets.plan_source(source.target("latest"), lambda kind: StreamService(source.kinesis))


def test_source_without_partitions_is_not_reset_silently(source: Source) -> None:
    with pytest.raises(ConfigurationError, match="source 'clicks' has no partitions"):
        source.resets.plan_source(source.target("earliest"), lambda kind: StreamService(source.kinesis))


def test_descendants_of_an_unreset_shard_stay(source: Source) -> None:
    source.split()
    parent, *children = source.shards
    parent_key = source.lease(parent)
    child_keys = [source.lease(child) for child in children]
    plan = source.plan_stream()
    source.worker.store.transact(update=[source[parent_key].completed(source.clock.now())])  # since it was looked at

    results = [result for _, result in source.do(plan)]

    assert "it was UNASSIGNED and is now COMPLETED" in str(results[0])
    assert all("is not removed: not all of its ancestors could be reset" in str(result) for result in results[1:])
    assert all(source.worker.view.get(key) is not None for key in child_keys)


def test_unattended_reset_applies_to_changed_partitions(source: Source) -> None:
    key = source.lease(source.shards[0])
    plan = source.plan(key)
    source.worker.leases.acquire(1)

    [(_, written)] = source.resets.apply(plan, only_if_unchanged=False)

    assert isinstance(written, Partition) and source[key].owner is None


@pytest.mark.parametrize("only_if_unchanged", [True, False])
def test_shard_removed_by_another_process_counts_as_removed(source: Source, only_if_unchanged: bool) -> None:
    source.split()
    parent, *children = source.shards
    source.lease(parent, finished=True)
    for child in children:
        source.lease(child)
    plan = source.plan_stream()
    source.worker.store.delete(source[source.key(children[0])])

    results = [result for _, result in source.resets.apply(plan, only_if_unchanged=only_if_unchanged)]

    assert len(results) == 3 and all(isinstance(result, Partition) for result in results)
    assert len(children) == 2 and all(source.worker.view.get(source.key(child)) is None for child in children)


# Partitions of items


def items(*names: str, **changes: Any) -> dict[str, Any]:
    return PartitionProgress(kind="s3", items=named(*names), **changes).to_mapping()


def test_item_partition_keeps_items_and_restarts_in_a_new_epoch(source: Source) -> None:
    begun = items("a", "b", checkpoint="1", failed=(FailedItem(item=0, reason="no"),), reads_left=3, waited=2)
    source.worker.create_partitions({"p": begun})

    source.do(source.resets.plan_source(source.target("earliest"), lambda kind: StreamService(source.kinesis)))

    epoch = int(source.clock.now().timestamp())
    assert source["p"].progress == items("a", "b", epoch=epoch, reads_left=3)


@pytest.mark.parametrize("to", ["latest", NOON - timedelta(days=1), "42"])
def test_item_partition_can_only_restart_from_the_beginning(source: Source, to: Any) -> None:
    source.worker.create_partitions({"p": items("a")})
    with pytest.raises(ProgressError, match=r"partition 'p' consists of items and has no position .*; reset it to '"):
        source.resets.plan_partitions([source["p"]], source.target(to))


def test_split_off_item_is_removed_with_its_reread_partition(source: Source) -> None:
    source.worker.create_partitions(
        {"p": items("a", "b", checkpoint="2", is_ended=True), "p#1": items("b", split_of="p", begin="0:7")}
    )

    alone = source.resets.plan_partitions([source["p#1"]], source.target("earliest"))
    assert [(step.action, step.partition.partition_key) for step in alone.steps] == [(ResetAction.RESET, "p#1")]

    source.do(source.resets.plan_source(source.target("earliest"), lambda kind: StreamService(source.kinesis)))
    assert source.worker.view.get("p#1") is None and source["p"].progress["checkpoint"] == ""


def test_split_off_item_restarts_at_its_own_start(source: Source) -> None:
    source.worker.create_partitions({"p#1": items("b", split_of="p", begin="0:7", checkpoint="0:9")})
    source.do(source.resets.plan_partitions([source["p#1"]], source.target("earliest")))
    assert source["p#1"].progress["checkpoint"] == "0:7"


def test_reset_cancels_a_waiting_item_batch(source: Source) -> None:
    source.worker.create_partitions({"p": items("a")})
    source.worker.leases.acquire(1)
    sets = AcknowledgmentSets(source.worker, SourceBatches())
    landed = PartitionProgress.from_mapping(source["p"].progress).landing(a_batch("", "1", is_last=True))
    begun = sets.begin("p", "batch-to-1", ["load"], timeout=timedelta(hours=1), progress=landed.to_mapping())

    source.do(source.resets.plan_partitions([source["p"]], source.target("earliest")))

    assert sets.view.get(begun.set_id).state is AcknowledgmentState.CANCELLED
    assert source["p"].progress["landed"] == []


def test_unreadable_item_progress_is_named_before_any_reset(source: Source) -> None:
    source.worker.create_partitions({"p": {"kind": "s3", "more": 1}})
    with pytest.raises(ProgressError, match="'p': its items cannot be read from its stored progress; give the prog"):
        source.resets.plan_partitions([source["p"]], source.target("earliest"))


def test_item_partition_accepts_only_progress_of_its_kind(source: Source) -> None:
    source.worker.create_partitions({"p": items("a")})
    check_progress(source["p"], items("b"))
    with pytest.raises(ProgressError, match="is not a progress of kind 's3': stored progress: field 'kind' is mi"):
        check_progress(source["p"], {})
    with pytest.raises(
        ProgressError, match="'p' is of kind 's3', but the given progress is of kind 'jdbc'; give a progress"
    ):
        check_progress(source["p"], {"kind": "jdbc", "items": []})


# What is begun


def in_delivery(source: Source) -> tuple[str, AcknowledgmentSets, str]:
    key = source.lease(source.shards[0])
    source.worker.leases.acquire(1)
    begun = begin_delivery(source.worker, key, a_batch("TRIM_HORIZON", "5"), ["load"])
    return key, AcknowledgmentSets(source.worker, SourceBatches()), begun.set_id


def test_reset_cancels_pending_acknowledgments(source: Source) -> None:
    key, sets, set_id = in_delivery(source)

    source.do(source.plan(key))

    assert sets.view.get(set_id).state is AcknowledgmentState.CANCELLED
    assert sets.view.get(set_id).reason == "its partition was reset by hand"


def test_removing_a_shard_cancels_pending_acknowledgments(source: Source) -> None:
    source.split()
    parent, child, _ = source.shards
    key = source.lease(child)
    source.worker.leases.acquire(1)
    begun = begin_delivery(source.worker, key, a_batch("TRIM_HORIZON", "5"), ["load"])
    source.lease(parent, finished=True)

    source.do(source.plan_stream())

    assert (
        AcknowledgmentSets(source.worker, SourceBatches()).view.get(begun.set_id).state is AcknowledgmentState.CANCELLED
    )


@pytest.mark.parametrize("end", ["released", "rejected", "expired", "cancelled"])
def test_set_surviving_a_reset_does_not_touch_the_partition(source: Source, end: str) -> None:
    key, sets, set_id = in_delivery(source)
    waiting = source[key]
    source.worker.store.transact(  # a reset that crashed before it cancelled the set
        update=[waiting.reset(ShardProgress.from_mapping(waiting.progress).restarted().to_mapping(), waiting.priority)]
    )
    after = source[key]
    outside = AcknowledgmentSets(source.fleet.owner("outside"), SourceBatches())

    if end == "expired":
        source.clock.advance(7200)
        outside.expire_overdue()
    elif end == "cancelled":
        outside.cancel(set_id, "why not")
    else:
        outside.release(set_id, "load", positive=end == "released", reason="no")

    assert not sets.view.get(set_id).is_pending
    assert source[key] == after


def test_missing_acknowledgment_set_does_not_stop_a_reset(source: Source) -> None:
    key, sets, set_id = in_delivery(source)
    item = source.worker.store.get(sets.view.source_identifier, set_id)
    assert item is not None
    source.worker.store.delete(item)

    [(_, written)] = source.do(source.plan(key))

    assert isinstance(written, Partition)


# What the person saw, and who it is


def test_partition_written_since_inspection_is_not_reset(source: Source) -> None:
    source.split()
    _, *children = source.shards
    keys = [source.lease(shard) for shard in children]
    versions = {key: source[key].version for key in keys}
    source.worker.leases.acquire(1)
    before = source[keys[0]]

    (_, refused), (_, written) = source.resets.apply(source.plan(*keys), versions=versions)

    assert isinstance(refused, PartitionUpdateError)
    assert f"version {versions[keys[0]]} was read, and it is now ASSIGNED to worker, version {before.version}" in str(
        refused
    )
    assert source[keys[0]] == before
    assert isinstance(written, Partition) and source[keys[1]] == written


def test_removal_requires_an_unchanged_partition(source: Source) -> None:
    source.split()
    parent, child, _ = source.shards
    parent_key, key = source.lease(parent, finished=True), source.lease(child)
    plan, versions = source.plan_stream(), {key: source[key].version}
    source.worker.store.transact(update=[source[key]])

    results = {step.partition.partition_key: result for step, result in source.resets.apply(plan, versions=versions)}

    assert isinstance(results[parent_key], Partition), "nobody said what version of it was seen"
    assert isinstance(results[key], PartitionUpdateError)


def test_reset_author_and_reason_are_logged_with_cancelled_sets(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    key, sets, _ = in_delivery(source)
    resets = Resets(sets, by="ann", reason="bad data")
    with caplog.at_level(logging.INFO):
        list(resets.apply(source.plan(key)))
    assert [message.partition(" by=")[2] for message in caplog.messages if " by=" in message] == [
        "ann reason='bad data'",
        "ann reason='its partition was reset by hand'",
    ]


def test_owner_of_a_reset_partition_cannot_write_progress(source: Source) -> None:
    key, sets, _ = in_delivery(source)
    source.do(source.plan(key))
    before = source[key]

    with pytest.raises(CoordinationError):
        source.worker.leases.save_progress(key, {"stream": "s"})
    with pytest.raises(CoordinationError):
        sets.begin(key, "batch-to-5", ["load"], timeout=timedelta(hours=1))
    assert source[key] == before
