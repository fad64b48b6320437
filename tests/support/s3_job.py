"""A bucket, a store, and Spark jobs over them, each job a process of its own as spark-submit starts it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.scan import S3Scan
from tests.support.item_job import ItemPipeline
from tests.support.s3_server import S3Server


class ObjectPipeline(ItemPipeline):
    """A bucket that is ingested into one dataset.

    :param given: settings of the source.
    """

    def __init__(self, server: S3Server, bucket: str, folder: Path, **given: Any) -> None:
        self.client, self.bucket = server.client(), bucket
        source = S3Objects(paths=(f"s3://{bucket}/",), aws=server.settings, **given)
        reads = ReadsSettings(kind=S3Objects.kind, settings=source.to_mapping())
        super().__init__(folder, reads, partial(S3Scan, source))

    def put(self, key: str, ids: Iterable[int]) -> None:
        """Put an object of JSON lines, compressed if its name says so."""
        body = "".join(f"{json.dumps({'id': each})}\n" for each in ids).encode()
        self.client.put_object(Bucket=self.bucket, Key=key, Body=gzip.compress(body) if key.endswith(".gz") else body)

    def ids(self) -> Counter[int]:
        """Return how often each record is in the dataset."""
        return Counter({json.loads(payload)["id"]: count for payload, count in self.delivered("data").items()})
