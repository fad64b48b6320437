"""A bucket, a store, and Spark jobs over them, each job a process of its own as spark-submit starts it."""

from __future__ import annotations

import gzip
import json
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.readers import ReaderSettings
from airflow_provider_coordination.sources.s3.scan import S3Scan
from airflow_provider_coordination.sources.s3.settings import KIND, S3Settings
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.s3_server import S3Server
from tests.support.spark_job import APPLICATION, CRASHING, Job, submit


@dataclass
class ObjectPipeline:
    """A bucket that is ingested into one dataset."""

    server: S3Server
    bucket: str
    folder: Path
    given: dict[str, Any] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = self.server.client()
        self.output = self.folder / "dataset"
        self.store = StoreSettings(url=f"sqlite:///{self.folder}/coordination.db")
        self.source = S3Settings(paths=(f"s3://{self.bucket}/",), aws=self.server.settings, **self.given)

    def put(self, key: str, ids: Iterable[int]) -> None:
        """Put an object of JSON lines, compressed if its name says so."""
        body = "".join(f"{json.dumps({'id': each})}\n" for each in ids).encode()
        self.client.put_object(Bucket=self.bucket, Key=key, Body=gzip.compress(body) if key.endswith(".gz") else body)

    def coordinator(self) -> SourceCoordinator:
        """Return a coordinator as another process of the fleet has it."""
        coordinator = SourceCoordinator(open_store(self.store), "objects", "test")
        coordinator.initialize()
        return coordinator

    def scan(self) -> list[str]:
        """Find the objects that are new; return the keys of their partitions."""
        coordinator = self.coordinator()
        return coordinator.supply(S3Scan(self.source, coordinator)) or []

    def settings(self, **changes: Any) -> IngestSettings:
        """Return the settings of a new job."""
        settings = IngestSettings(
            source="objects",
            owner=f"owner-{uuid.uuid4().hex[:8]}",
            output=str(self.output),
            expires_at=datetime.now(UTC) + timedelta(hours=1),
            store=self.store,
            reader=ReaderSettings(kind=KIND, settings=self.source.to_mapping()),
            idle_seconds=0.2,
        )
        return replace(settings, **changes)

    def run(self, application: Path = APPLICATION, *, env: dict[str, str] | None = None, **changes: Any) -> Job:
        """Run a job to its end."""
        self.jobs.append(submit(self.settings(**changes), self.folder, application, env=env))
        self.jobs[-1].wait()
        return self.jobs[-1]

    def crash(self, at: str, **changes: Any) -> Job:
        """Run a job whose driver kills itself; see `Pipeline.crash`."""
        return self.run(CRASHING, env={"CRASH_AT": at}, **changes)

    def delivered(self) -> Counter[int]:
        """Return how often each record is in the dataset."""
        payloads = ds.dataset(self.output, format="parquet").to_table(columns=["data"])["data"].to_pylist()
        return Counter(json.loads(payload)["id"] for payload in payloads)
