"""Records that expired before they were read: reported with their range, without effect on other shards."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.history import STREAM, History

DAY = 24 * 3600
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


def with_a_gap(folder: Path, on_data_loss: str) -> History:
    """Return a stream whose first shard lost unread records; the second shard has all of its records."""
    history = History(folder, on_data_loss=on_data_loss)
    history.sync()
    put(history, FIRST, "read")
    put(history, SECOND, "read")
    history.run()
    put(history, FIRST, "lost")
    history.clock.advance(DAY - 60)
    second = history.partitions[SECOND]  # a job was there since, and read what there was
    until = replace(history.progress(SECOND), delivered_until=history.clock.now())
    history.store.transact(update=[second.with_progress(until.to_mapping())])
    put(history, FIRST, "kept")
    put(history, SECOND, "kept")
    history.clock.advance(120)
    return history


def put(history: History, shard: str, event: str) -> None:
    ranges = {s["ShardId"]: s["HashKeyRange"] for s in history.client.list_shards(StreamName=STREAM)["Shards"]}
    history.client.put_record(
        StreamName=STREAM,
        Data=f"{shard[-1]}/{event}".encode(),
        PartitionKey="k",
        ExplicitHashKey=ranges[shard]["StartingHashKey"],
    )


def test_fail_parks_only_the_shard_at_its_position(tmp_path: Path) -> None:
    history = with_a_gap(tmp_path, "fail")
    before = history.progress(FIRST).checkpoint
    summary = history.run()
    parked = history.partitions[FIRST]
    assert parked.is_parked and history.progress(FIRST).checkpoint == before
    assert "data was gone before it was read" in (parked.last_error or "")
    assert list(summary.failed) == [parked.partition_key] == list(summary.data_loss)
    assert history.delivered == Counter(["0/read", "1/read", "1/kept"])


def test_reset_resumes_behind_the_gap_and_records_it(tmp_path: Path) -> None:
    history = with_a_gap(tmp_path, "reset")
    before = history.progress(FIRST).checkpoint
    summary = history.run()
    [gap] = history.progress(FIRST).gaps
    assert gap.after == before
    assert gap.before == history.progress(FIRST).checkpoint, "the one record behind it"
    assert gap.since is not None and gap.until is not None and gap.since < gap.until
    assert (summary.failed, history.losses) == ({}, 1)
    assert history.delivered == Counter(["0/read", "1/read", "0/kept", "1/kept"])
    assert history.run().data_loss == {}, "it is reported once"


def test_resetting_a_parked_shard_resumes_it(tmp_path: Path) -> None:
    history = with_a_gap(tmp_path, "fail")
    history.run()
    partition = history.partitions[FIRST]
    restarted = history.progress(FIRST).restarted().to_mapping()
    history.store.transact(update=[partition.reset(restarted, history.clock.now())])
    assert history.run().failed == {}
    assert history.delivered == Counter(["0/read", "1/read", "0/kept", "1/kept"])
    assert len(history.progress(FIRST).gaps) == 1, "the gap is not forgotten"


@pytest.mark.parametrize("on_data_loss", ["fail", "reset"])
def test_fully_read_stream_loses_nothing_while_idle(tmp_path: Path, on_data_loss: str) -> None:
    history = History(tmp_path, on_data_loss=on_data_loss)
    history.sync()
    put(history, FIRST, "read")
    for _ in range(5):
        history.run()
        history.clock.advance(DAY / 2)
    assert (history.losses, history.delivered) == (0, Counter(["0/read"]))


def test_unread_expired_shard_finishes_and_its_children_are_read(tmp_path: Path) -> None:
    history = History(tmp_path, 1, on_data_loss="reset")
    history.sync()
    history.send(3)
    history.split(0)
    history.clock.advance(DAY + 60)
    history.send(5)
    lost, kept = history.sent[:3], history.sent[3:]
    history.settle()
    history.settle()  # the job's own shard sync is sure when it has seen the hole three times
    assert history.delivered == Counter(kept)
    assert lost and history.losses >= 1
    assert history.unfinished() == []


def test_unread_expired_shard_is_parked_on_request(tmp_path: Path) -> None:
    history = History(tmp_path, 1, on_data_loss="fail")
    history.sync()
    history.send(3)
    history.split(0)
    history.clock.advance(DAY + 60)
    summary = history.run()
    parked = history.partitions[FIRST]
    assert parked.is_parked and parked.status is PartitionStatus.CLOSED
    assert list(summary.data_loss) == [parked.partition_key]


@pytest.mark.parametrize("on_data_loss", ["fail", "reset"])
def test_data_landed_before_stream_deletion_is_delivered(tmp_path: Path, on_data_loss: str) -> None:
    history = History(tmp_path, 1, on_data_loss=on_data_loss)
    history.sync()
    history.send(3)
    worker = history.start()
    worker.dies_at = ("recorded", 1)
    history.work(worker)
    assert history.delivered == Counter()
    history.recreate(0)
    history.clock.advance(100)
    history.settle()
    assert history.delivered == Counter(history.sent)


def test_shard_with_denied_reads_fails_alone(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.sync()
    put(history, FIRST, "read")
    put(history, SECOND, "read")
    history.engine.faults.deny("GetRecords", stream=STREAM, shard_id=FIRST, times=100)
    summary = history.run()
    assert [key.rsplit(":")[-1] for key in summary.failed] == [FIRST]
    assert history.delivered == Counter(["1/read"])


@pytest.mark.parametrize("fault", ["throttle", "fail", "reset", "lose_answer", "expired"])
def test_temporary_errors_lose_nothing(tmp_path: Path, fault: str) -> None:
    history = History(tmp_path)
    history.sync()
    history.send(20)
    if fault == "expired":
        history.engine.faults.expire_iterator(stream=STREAM, times=3)
    else:
        effect: Any = getattr(history.engine.faults, fault)
        effect("GetRecords", stream=STREAM, times=3)
    history.settle()
    assert history.delivered == Counter(history.sent)
    assert history.out_of_order() == []
