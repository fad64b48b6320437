"""How far behind the shards are that nobody reads.

Whoever reads a shard knows that from the answers that it gets anyway. Of a shard without a reader a page of one record
is asked: there is no reader from whose quota it would take. A shard without anything new has no lag.
"""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from itertools import islice

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.pacing import Patience
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.reader import read_shard
from airflow_provider_coordination.sources.landed import ProgressFormatError

PAGES = 3
"""How many pages are asked for at most: the first ones may be empty although records follow."""


def unread_lag(client: KinesisClient, partition: Partition, patience: Patience | None = None) -> timedelta | None:
    """Return how long the first record of a shard waits that nobody has read; None if that is not known.

    :param client: as `kinesis_client` returns it.
    :param partition: the shard's, which nobody reads now.
    :param patience: how long to go on trying; once by default.
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
            patience=patience or Patience(attempts=1),
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
