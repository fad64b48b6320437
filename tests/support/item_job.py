"""A source of items, a store, and Spark jobs over them, each job a process of its own as spark-submit starts it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.support.job_settings import changed, ingest
from tests.support.spark_job import APPLICATION, CRASHING, Job, submit


@dataclass
class ItemPipeline:
    """A source that is ingested into one dataset.

    :param reads: what is read.
    :param supplier: finds its partitions.
    """

    folder: Path
    reads: ReadsSettings
    supplier: Callable[[SourceCoordinator], Supplier]
    jobs: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.output = self.folder / "dataset"
        self.store = StoreSettings.from_url(f"sqlite:///{self.folder}/coordination.db")

    def coordinator(self) -> SourceCoordinator:
        """Return a coordinator as another process of the fleet has it."""
        coordinator = SourceCoordinator(open_store(self.store), "items", "test")
        coordinator.initialize()
        return coordinator

    def find(self) -> list[str]:
        """Find the partitions that are new; return their keys."""
        coordinator = self.coordinator()
        return coordinator.supply(self.supplier(coordinator)) or []

    def run(
        self,
        application: Path = APPLICATION,
        *,
        env: dict[str, str] | None = None,
        conf: dict[str, str] | None = None,
        **changes: Any,
    ) -> Job:
        """Run a job to its end; see `submit`."""
        settings = ingest(
            source="items",
            owner=f"owner-{uuid.uuid4().hex[:8]}",
            output=str(self.output),
            expires_at=datetime.now(UTC) + timedelta(hours=1),
            store=self.store,
            reads=self.reads,
            idle_duration=0.2,
        )
        self.jobs.append(submit(changed(settings, **changes), self.folder, application, env=env, conf=conf))
        self.jobs[-1].wait()
        return self.jobs[-1]

    def crash(self, at: str, **changes: Any) -> Job:
        """Run a job whose driver kills itself; see `Pipeline.crash`."""
        return self.run(CRASHING, env={"CRASH_AT": at}, **changes)

    def delivered(self, column: str) -> Counter[str]:
        """Return how often each value of a column is in the dataset."""
        return Counter(ds.dataset(self.output, format="parquet").to_table(columns=[column])[column].to_pylist())
