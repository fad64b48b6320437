"""Splits and merges under a running job."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.shards import Shard
from tests.support.history import STREAM, History

PARENT, CHILD = "shardId-000000000000", "shardId-000000000001"


def test_children_are_read_after_the_resharding_settles(tmp_path: Path) -> None:
    history = History(tmp_path, 1, repartition_transition_duration=100.0)
    history.sync()
    worker = history.start()
    history.send(4)
    history.split(0)
    history.send(6)
    history.work(worker)
    completed_at = history.partitions[PARENT].priority
    assert history.partitions[PARENT].status is PartitionStatus.COMPLETED
    while len(history.sink.events) < len(history.sent):
        assert history.delivered == Counter(history.sent[:4])
        history.clock.advance(10)
        history.work(worker)
    assert (history.clock.now() - completed_at).total_seconds() >= 100
    assert history.out_of_order() == []


def test_catching_up_job_waits_for_a_resharding_to_settle(tmp_path: Path) -> None:
    history = History(tmp_path, 1, repartition_transition_duration=0.5)
    history.sync()
    history.send(4)
    history.split(0)
    history.send(6)
    history.clock.advance(1)
    history.run()
    assert history.delivered == Counter(history.sent)


def test_child_waits_for_its_unfinished_parent(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    history.sync()
    history.send(4)
    history.split(0)
    history.send(6)
    shards = [Shard.from_api(shard) for shard in history.client.list_shards(StreamName=STREAM)["Shards"]]
    key = history.partitions[PARENT].partition_key.replace(PARENT, CHILD)
    history.look.create_partitions({key: ShardProgress.first(STREAM, shards[1]).to_mapping()})
    child, parent = history.start(max_leases=2), history.partitions[PARENT]
    held = parent.acquired("somebody else", history.clock.now() + history.look.leases.ownership_timeout)
    history.store.transact(update=[held])
    history.work(child)
    assert history.delivered == Counter(), "the child is not read before its parent"
    assert history.partitions[CHILD].status is PartitionStatus.UNASSIGNED
    history.settle()
    assert history.delivered == Counter(history.sent)
    assert history.out_of_order() == []


def test_worker_refills_with_children_of_ended_shards(tmp_path: Path) -> None:
    history = History(tmp_path, 4)
    history.sync()
    workers = [history.start() for _ in range(2)]
    for _ in range(3):
        for worker in workers:
            history.work(worker)
        history.split(1)
        history.merge(2)
        history.send(8)
    history.settle()
    owners = Counter(p.owner for p in history.partitions.values() if p.status is PartitionStatus.ASSIGNED)
    assert set(owners) == {worker.name for worker in workers}
    assert max(owners.values()) - min(owners.values()) <= 1
    assert history.delivered == Counter(history.sent)


def test_job_reads_several_streams_and_survives_losing_one(tmp_path: Path) -> None:
    history = History(tmp_path, 1, streams=(STREAM, "views"))
    history.client.create_stream(StreamName="views", ShardCount=2)
    history.sync_of(history.look).run([STREAM, "views"], forced=True)
    history.send(4)
    history.client.put_record(StreamName="views", Data=b"v/0", PartitionKey="v")
    worker = history.start()
    history.work(worker)
    assert history.delivered == Counter([*history.sent, "v/0"])
    history.client.delete_stream(StreamName="views")
    history.send(4)
    history.settle()
    assert history.delivered == Counter([*history.sent, "v/0"])
    assert worker.name in history.workers
