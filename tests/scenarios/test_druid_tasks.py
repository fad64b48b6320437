"""The Druid scenarios of `scenarios.md` about finding shards and handing off, by number.

Druid's task keeps rows in memory and hands segments off. Here a job lands batches, which are recorded before they are
delivered; so a number of rows is a batch's size, a hand-off is the checkpoint's step over it, and a task that conflicts
with another is one whose lease another has. Scenarios 41 and 42 are in `test_kcl_reading.py`.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
from botocore.stub import Stubber

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.shards import list_shards
from tests.support.fleet import MortalWorker
from tests.support.history import LEASE, STREAM, History

SHARD = "shardId-000000000000"


def in_small_batches(folder: Path, **settings: Any) -> History:
    """A stream of one shard, a page of which is a batch."""
    history = History(folder, 1, max_batch_bytes=1, **settings)
    history.sync()
    return history


def sequence_numbers(history: History, shard: str = SHARD) -> list[str]:
    return [record["SequenceNumber"] for record in history.engine.stored(STREAM)[shard]]


def processed(worker: MortalWorker) -> int:
    return worker.job.report().totals.processed


def test_39_shards_are_listed_by_page_token_alone() -> None:
    shards = [
        {
            "ShardId": f"shardId-{n}",
            "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
            "SequenceNumberRange": {"StartingSequenceNumber": "1"},
        }
        for n in range(2)
    ]
    client = boto3.client("kinesis", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="s")
    with Stubber(client) as answers:  # which refuses a request with other parameters
        answers.add_response("list_shards", {"Shards": shards[:1], "NextToken": "more"}, {"StreamName": STREAM})
        answers.add_response("list_shards", {"Shards": shards[1:]}, {"NextToken": "more"})
        assert [shard.shard_id for shard in list_shards(client, STREAM)] == ["shardId-0", "shardId-1"]
        answers.assert_no_pending_responses()


def test_46_full_batch_is_handed_off_and_counted_once(tmp_path: Path) -> None:
    """Druid reads the record again at which it paused. Here a batch begins after the end of the one before."""
    history = in_small_batches(tmp_path)
    worker, ends = history.start(), []
    for _ in range(2):
        history.send(5)
        history.work(worker)
        ends.append(history.progress(SHARD).checkpoint)
    numbers = sequence_numbers(history)
    assert ends == [numbers[4], numbers[9]]
    assert history.delivered == Counter(history.sent)
    assert processed(worker) == 10


def test_47_long_job_hands_off_repeatedly_and_continues(tmp_path: Path) -> None:
    history = in_small_batches(tmp_path, by=("check",))
    worker = history.start()
    for _ in range(2):
        history.send(3)
        history.work(worker)
    first, second = history.progress(SHARD).landed
    numbers = sequence_numbers(history)
    assert (first.end, second.start, second.end) == (numbers[2], numbers[2], numbers[5])
    sets = AcknowledgmentSets(history.look, SourceBatches())
    checkpoints = []
    for batch in (first, second):
        assert batch.acknowledgment_set is not None
        sets.acknowledge(batch.acknowledgment_set, positive=True)
        checkpoints.append(history.progress(SHARD).checkpoint)
    assert checkpoints == [numbers[2], numbers[5]]


def test_49_one_of_two_jobs_reading_the_same_records_commits(tmp_path: Path) -> None:
    """Druid's later task fails at its commit. Here it reads nothing: a shard is leased to one job at a time."""
    history = in_small_batches(tmp_path)
    history.send(3)
    one, other = history.start(), history.start()
    history.work(one)
    history.work(other)
    assert history.delivered == Counter(history.sent)
    assert processed(other) == 0
    assert history.progress(SHARD).checkpoint == sequence_numbers(history)[-1]


def test_51_replacement_job_resumes_at_the_previous_position(tmp_path: Path) -> None:
    history = in_small_batches(tmp_path)
    history.send(2)
    one = history.start()
    history.work(one)
    history.lose(one)
    history.clock.advance(2 * LEASE.total_seconds())
    history.send(3)
    other = history.start()
    history.work(other)
    assert processed(other) == 3
    assert history.progress(SHARD).checkpoint == sequence_numbers(history)[-1]
    assert history.delivered == Counter(history.sent)


def test_52_missing_confirmation_does_not_undo_a_delivery(tmp_path: Path) -> None:
    """Druid calls the task a success. Here the batch is delivered again, in place of what is there."""
    history = in_small_batches(tmp_path, by=("check",), timeout=120.0)
    history.send(2)
    worker = history.start()
    history.work(worker)
    history.clock.advance(timedelta(seconds=121).total_seconds())
    AcknowledgmentSets(history.look, SourceBatches()).expire_overdue()
    [batch] = history.progress(SHARD).landed
    assert batch.redeliver
    assert history.delivered == Counter(history.sent)
