"""The lag of shards without a reader.

A reader of a shard knows the lag from the responses that it gets anyway. For a shard without a reader, a page of one
record is requested, which takes nothing from another reader's quota. A shard without new records has no lag.
"""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from itertools import islice

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.reader import read_shard
from airflow_provider_coordination.sources.landed import ProgressFormatError

PAGES = 3
"""How many pages are requested at most: the first ones may be empty although records follow."""


def unread_lag(client: KinesisClient, partition: Partition, retry: RetryBudget | None = None) -> timedelta | None:
    """Return how long the first unread record of a shard has waited; None if that is not known.

    :param client: as `kinesis_client` returns it.
    :param partition: the partition of the shard, which has no reader now.
    :param retry: how long to retry; by default there is one attempt.
    """
    try:
        progress = ShardProgress.from_mapping(partition.progress)
        if progress.is_ended:
            return timedelta(0)
        pages = read_shard(
            client,
            progress.stream,
            progress.shard_id,
            progress.landed_position,
            page_records=1,
            retry=retry or RetryBudget(attempts=1),
        )
        with closing(pages):
            for page in islice(pages, PAGES):
                if page.records:
                    return max(page.read_at - page.records[0].approximate_arrival_timestamp, timedelta(0))
                if page.is_drained or page.end_of_shard:
                    return timedelta(0)
    except (ProgressFormatError, SourceError):
        pass
    return None
