"""A plain boto3 loop over a stream; a separate module, because Spark's workers must import it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from airflow_provider_coordination.aws import AwsSettings


def plain_pages(aws: AwsSettings, shards: Iterable[int]) -> Iterator[list[dict[str, Any]]]:
    """Yield the pages of shards, read as in most tutorials."""
    client = plain_client(aws)
    for shard in shards:
        iterator = client.get_shard_iterator(
            StreamName="b", ShardId=f"shardId-{shard:012d}", ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while True:
            page = client.get_records(ShardIterator=iterator, Limit=10_000)
            if not page["Records"]:
                break
            yield page["Records"]
            iterator = page["NextShardIterator"]


@cache
def plain_client(aws: AwsSettings) -> Any:
    """Return a default boto3 client, one for a process, like ours."""
    import boto3

    return boto3.client(
        "kinesis",
        region_name=aws.region,
        endpoint_url=aws.endpoint_url,
        aws_access_key_id=aws.access_key_id,
        aws_secret_access_key=aws.secret_access_key,
    )
