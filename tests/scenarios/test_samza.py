"""The Samza scenarios of `scenarios.md` for a job that reads shards under leases, by number.

Samza binds a shard to one of a fixed number of slots. Here a worker leases shards and deals them to the slots of each
round, so slots never run out: where Samza's scenario is about slots, the test is about leases.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionNotOwnedError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardReadPlan
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.slots import distribute
from tests.support.history import STREAM, History
from tests.support.job_settings import reads_of, streams_of

PARENT = "shardId-000000000000"


def test_54_shards_are_read_checkpointed_and_given_back(tmp_path: Path) -> None:
    history = History(tmp_path, 2)
    history.sync()
    history.send(10)
    worker = history.start()
    history.work(worker)
    last = {shard: records[-1]["SequenceNumber"] for shard, records in history.engine.stored(STREAM).items()}
    assert {shard: history.progress(shard).checkpoint for shard in last} == last
    assert history.out_of_order() == []
    history.stop(worker)
    assert {p.status for p in history.partitions.values()} == {PartitionStatus.UNASSIGNED}


def test_56_shards_are_distributed_over_available_slots() -> None:
    plans = [
        ShardReadPlan(
            source_identifier="s|PARTITION",
            partition_key=f"s:1:shardId-{n}",
            fencing_token=1,
            stream="s",
            shard_id=f"shardId-{n}",
            start=BatchStart(position="TRIM_HORIZON"),
        )
        for n in range(3)
    ]
    slots = distribute(plans, 2)
    assert [len(slot) for slot in slots] == [2, 1]
    assert sorted(plan.shard_id for slot in slots for plan in slot) == ["shardId-0", "shardId-1", "shardId-2"]


def test_57_only_the_holder_gives_a_lease_back_once(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.sync()
    one, other = history.coordinator("one", history.store), history.coordinator("other", history.store)
    [held] = one.leases.acquire(1)
    with pytest.raises(PartitionNotOwnedError):
        other.leases.give_up(held.partition_key)
    one.leases.give_up(held.partition_key)
    with pytest.raises(PartitionNotOwnedError):
        one.leases.give_up(held.partition_key)


def test_59_last_acknowledgment_finishes_a_shard_with_data(tmp_path: Path) -> None:
    history = History(tmp_path, 1, by=("check",), max_batch_bytes=1)
    history.sync()
    worker = history.start()
    history.send(4)
    history.work(worker)
    history.send(1)
    history.split(0)
    history.work(worker)
    sets = AcknowledgmentSets(history.look, SourceBatches())
    pending = sorted(sets.view.pending(), key=lambda waiting: int(waiting.batch["end"]))
    assert len(pending) > 1
    for waiting in pending:
        assert history.partitions.keys() == {PARENT}, "its children are not opened before"
        assert history.partitions[PARENT].status is not PartitionStatus.COMPLETED
        sets.acknowledge(waiting.set_id, positive=True)
    assert history.partitions[PARENT].status is PartitionStatus.COMPLETED
    assert len(history.partitions) == 3


def test_59_wait_for_the_last_acknowledgment_ends(tmp_path: Path) -> None:
    """Samza waits forever; here the set expires, and the batch is delivered again."""
    history = History(tmp_path, 1, by=("check",), timeout=120.0)
    history.sync()
    history.send(2)
    history.split(0)
    worker = history.start()
    history.work(worker)
    sets = AcknowledgmentSets(history.look, SourceBatches())
    [waiting] = sets.view.pending()
    history.clock.advance(timedelta(seconds=121).total_seconds())
    sets.expire_overdue()
    assert not sets.view.get(waiting.set_id).is_pending
    assert history.partitions[PARENT].status is not PartitionStatus.COMPLETED
    assert history.delivered == Counter(history.sent)


def settings(**changes: object) -> IngestSettings:
    values = {
        "source": "s",
        "owner": "o",
        "reads": {"kind": "kinesis", "settings": {"streams": ["s"]}},
        "writes": [{"name": "main", "kind": "parquet", "location": "/data"}],
        "landing_path": "/data/_landing",
        "expires_at": "2026-01-01T00:00:00.000000Z",
        "store": {"settings": {"url": "sqlite:///x.db"}},
        **changes,
    }
    return read_settings(IngestSettings, "ingest settings", values)


def test_61_each_source_has_its_own_settings() -> None:
    """Samza layers settings of a system and of its streams; here a job has one set of them."""
    one, other = (
        settings(
            reads=write_settings(reads_of(KinesisStreams(streams=("s",), on_data_loss="earliest"))),
            rounds={"round_duration": "PT5S"},
        ),
        settings(source="t"),
    )
    assert (streams_of(one).on_data_loss, one.rounds.round_duration) == ("earliest", timedelta(seconds=5))
    assert (streams_of(other).on_data_loss, other.rounds) == ("fail", RoundSettings())


def test_62_unknown_setting_is_refused_by_name() -> None:
    """Samza accepts it in silence."""
    with pytest.raises(ConfigurationError, match="random"):
        settings(random=1)
