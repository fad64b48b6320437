"""Records that expired before they were read: reported with their range, without effect on other shards."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.service import unread
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
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


def test_earliest_resumes_behind_the_gap_and_records_it(tmp_path: Path) -> None:
    history = with_a_gap(tmp_path, "earliest")
    before = history.progress(FIRST).checkpoint
    summary = history.run()
    [gap] = history.progress(FIRST).gaps
    assert gap.after == before
    assert gap.before == history.progress(FIRST).checkpoint, "the one record behind it"
    assert gap.since is not None and gap.until is not None and gap.since < gap.until
    assert (summary.failed, history.losses) == ({}, 1)
    assert history.delivered == Counter(["0/read", "1/read", "0/kept", "1/kept"])
    assert history.run().data_loss == {}, "it is reported once"


def test_latest_skips_what_is_left_and_records_it(tmp_path: Path) -> None:
    history = with_a_gap(tmp_path, "latest")
    before = history.progress(FIRST).checkpoint
    summary = history.run()
    [gap] = history.progress(FIRST).gaps
    assert (gap.after, gap.before) == (before, None)
    assert history.progress(FIRST).delivered_until is not None and "skips what is left" in gap.reason
    assert (summary.failed, history.losses) == ({}, 1)
    put(history, FIRST, "new")
    assert history.run().data_loss == {}, "it is reported once"
    assert history.delivered == Counter(["0/read", "1/read", "1/kept", "0/new"])


def test_latest_delivers_landed_batches_before_it_skips(tmp_path: Path) -> None:
    history = History(tmp_path, 1, on_data_loss="latest")
    history.sync()
    history.send(3)
    worker = history.start()
    worker.dies_at = ("recorded", 1)
    history.work(worker)
    landed = list(history.sent)
    history.send(2)
    history.clock.advance(DAY + 60)
    history.settle()
    history.send(2)
    history.settle()
    assert history.delivered == Counter(landed + history.sent[-2:])
    assert history.losses == 1


def test_children_of_a_skipped_shard_start_at_their_first_record(tmp_path: Path) -> None:
    history = with_a_gap(tmp_path, "latest")
    history.split(0)
    put(history, "shardId-000000000002", "child")
    history.settle()
    history.settle()
    assert history.delivered == Counter(["0/read", "1/read", "1/kept", "2/child"])
    assert history.losses == 1


def test_resetting_a_parked_shard_resumes_it(tmp_path: Path) -> None:
    history = with_a_gap(tmp_path, "fail")
    history.run()
    partition = history.partitions[FIRST]
    restarted = history.progress(FIRST).restarted().to_mapping()
    history.store.transact(update=[partition.reset(restarted, history.clock.now())])
    assert history.run().failed == {}
    assert history.delivered == Counter(["0/read", "1/read", "0/kept", "1/kept"])
    assert len(history.progress(FIRST).gaps) == 1, "the gap is not forgotten"


@pytest.mark.parametrize("on_data_loss", ["fail", "earliest"])
def test_fully_read_stream_loses_nothing_while_idle(tmp_path: Path, on_data_loss: str) -> None:
    history = History(tmp_path, on_data_loss=on_data_loss)
    history.sync()
    put(history, FIRST, "read")
    for _ in range(5):
        history.run()
        history.clock.advance(DAY / 2)
    assert (history.losses, history.delivered) == (0, Counter(["0/read"]))


HOUR = 3600
FIVE_DAYS = 5 * DAY


@pytest.mark.parametrize("consumer", [None, "web"], ids=["polled", "pushed"])
@pytest.mark.parametrize("initial_position", ["LATEST", "TRIM_HORIZON"])
@pytest.mark.parametrize("has_record", [False, True], ids=["never a record", "a record before"])
def test_five_days_of_silence_are_no_loss(
    tmp_path: Path, initial_position: str, consumer: str | None, has_record: bool
) -> None:
    """One job reads on for five days, with a retention of one, and another takes over for the last hours."""
    history = History(tmp_path, initial_position=initial_position, on_data_loss="fail")
    history.consumer = consumer
    history.sync()
    history.clock.advance(60)
    if has_record:
        put(history, FIRST, "early")
        history.run()
    worker = history.start()
    for _ in range(FIVE_DAYS // (6 * HOUR)):
        history.work(worker)
        history.clock.advance(6 * HOUR)
    history.stop(worker)
    history.clock.advance(12 * HOUR)

    put(history, FIRST, "late")
    put(history, SECOND, "late")
    summary = history.run()

    assert (summary.data_loss, summary.failed, history.losses) == ({}, {}, 0)
    early = ["0/early"] if has_record else []
    assert history.delivered == Counter([*early, "0/late", "1/late"])


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_five_idle_days_lose_nothing_if_positions_are_confirmed(tmp_path: Path, is_confirmed: bool) -> None:
    """No job reads; a supervisor confirms every six hours that everything is read."""
    history = History(tmp_path, initial_position="TRIM_HORIZON", on_data_loss="earliest")
    history.sync()
    history.clock.advance(60)
    put(history, FIRST, "early")
    history.run()
    for _ in range(FIVE_DAYS // (6 * HOUR)):
        history.clock.advance(6 * HOUR)
        for partition in history.partitions.values() if is_confirmed else ():
            progress = unread(StreamService(history.client), partition).confirmed
            assert progress is not None
            history.store.transact(update=[partition.with_progress(progress)])

    put(history, FIRST, "late")
    summary = history.run()

    assert bool(summary.data_loss) is not is_confirmed
    assert history.delivered == Counter(["0/early", "0/late"])


def test_unread_record_is_never_confirmed(tmp_path: Path) -> None:
    history = History(tmp_path, initial_position="TRIM_HORIZON")
    history.sync()
    put(history, FIRST, "unread")
    history.clock.advance(HOUR)
    confirmed = {
        key: unread(StreamService(history.client), partition).confirmed is not None
        for key, partition in history.partitions.items()
    }
    assert confirmed == {FIRST: False, SECOND: True}


def test_pushed_silence_is_never_subscribed_to_from_its_start(tmp_path: Path) -> None:
    history = History(tmp_path, 1, initial_position="LATEST")
    history.consumer = "web"
    history.sync()
    asked: list[dict[str, Any]] = []
    subscribe = history.client.subscribe_to_shard
    history.client.subscribe_to_shard = lambda **request: (  # type: ignore[method-assign]
        asked.append(request["StartingPosition"]) or subscribe(**request)
    )
    history.clock.advance(60)
    worker = history.start()
    for _ in range(FIVE_DAYS // (6 * HOUR)):
        history.work(worker)
        history.clock.advance(6 * HOUR)

    assert [position["Type"] for position in asked] == ["AT_TIMESTAMP", *["AFTER_SEQUENCE_NUMBER"] * (len(asked) - 1)]
    assert len(asked) >= 20


def test_unread_expired_shard_finishes_and_its_children_are_read(tmp_path: Path) -> None:
    history = History(tmp_path, 1, on_data_loss="earliest")
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


@pytest.mark.parametrize("on_data_loss", ["fail", "earliest"])
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
