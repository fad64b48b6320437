"""One stream that jobs on a Spark cluster ingest into a bucket, under leases in PostgreSQL."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyarrow import fs

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.sink_settings import PARQUET, SinkSettings
from airflow_provider_coordination.spark.sinks.delta.log import storage_options
from airflow_provider_coordination.spark.writes import ForeachBatch
from airflow_provider_coordination.spark.writes.iceberg import storage_properties
from tests.support.bucket_readers import Batches, by_batch
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_job import APPLICATION, REPOSITORY, Job, Pipeline
from tests.support.sql_tables import SqlTarget
from tests.support.waiting import until

FUNCTIONS = REPOSITORY / "tests" / "system" / "apps" / "cluster_functions.py"
KINDS = ("parquet", "delta", "iceberg", "sql", "function")
"""The sinks of a job, in the order in which a delivery is committed to them."""
CATALOG, TABLE = "lake", "lake.clicks"
LEASE = {"ownership_timeout": timedelta(seconds=15), "safety_margin": timedelta(seconds=1)}
"""Of jobs whose leases run out."""
ONE_EXECUTOR = {"spark.cores.max": "1"}
"""Of jobs that need a single executor, and leave room for others."""


@dataclass(kw_only=True)
class ClusterPipeline(Pipeline):
    """Delivers the raw records into one Parquet dataset.

    :param cluster: where the jobs run.
    :param aws: how they reach the bucket.
    :param direct: how others reach it.
    :param bucket: its name.
    """

    cluster: SparkCluster
    aws: AwsSettings
    direct: AwsSettings
    bucket: str

    @property
    def path(self) -> str:
        """The bucket and the folder of the Parquet dataset."""
        return f"{self.bucket}/parquet"

    def writes(self) -> tuple[SinkSettings, ...]:
        """Return the sinks of a job."""
        return (SinkSettings(name="parquet", kind=PARQUET, location=f"s3://{self.path}", aws=self.aws),)

    def given(self) -> dict[str, Any]:
        """Return the settings of a job."""
        return {"writes": self.writes(), "landing_path": f"s3://{self.path}/_landing", "round_duration": 2}

    def start(
        self,
        application: Path = APPLICATION,
        *,
        master: str = "",
        env: dict[str, str] | None = None,
        conf: dict[str, str] | None = None,
        **changes: Any,
    ) -> Job:
        """Start a job on the cluster; see `Pipeline.start`."""
        on_cluster = {**self.cluster.conf, **(conf or {})}
        given = {**self.given(), **changes}
        return super().start(application, master=master or self.cluster.master_url, env=env, conf=on_cluster, **given)

    def batches(self, sink: str) -> Batches:
        """Return what a sink holds, as somebody sees it who knows nothing of the package."""
        return self._arrow("parquet", "data", lambda payload: json.loads(payload)["id"])

    def ids(self, sink: str) -> Counter[str]:
        """Return how often each record is in a sink."""
        return sum(self.batches(sink).values(), Counter())

    def assert_each_once(self, sink: str) -> None:
        """Check that every record that was sent is in a sink, once."""
        found = self.ids(sink)
        lost = set(self.sent) - set(found)
        doubled = {record for record, count in found.items() if count > 1}
        assert (len(lost), len(doubled), len(found)) == (0, 0, len(self.sent)), sink

    def wait_until_delivered(self, job: Job, sink: str = "parquet") -> None:
        """Return once everything that was sent is in a sink."""

        def is_delivered() -> bool:
            assert job.process.poll() is None, job.output
            return self.ids(sink).keys() >= set(self.sent)

        until(is_delivered, lambda: job.output)

    def _arrow(self, folder: str, column: str, id_of: Callable[[Any], str] = str) -> Batches:
        files = [
            info.path
            for info in self.files.get_file_info(fs.FileSelector(f"{self.bucket}/{folder}", allow_not_found=True))
            if info.type == fs.FileType.File
        ]
        if not files:
            return {}
        rows = ds.dataset(files, filesystem=self.files, format="parquet").to_table(columns=["_batch_id", column])
        ids = map(id_of, rows[column].to_pylist())
        return by_batch(zip(rows["_batch_id"].to_pylist(), ids, strict=True))

    @property
    def files(self) -> fs.S3FileSystem:
        """The bucket, by pyarrow."""
        return fs.S3FileSystem(**_arrow_access(self.direct))


@dataclass(kw_only=True)
class EverySink(ClusterPipeline):
    """Delivers the records with their ids into a sink of each kind.

    :param postgres: the SQLAlchemy URL of an empty database, for a table and for the catalog of the Iceberg table.
    """

    postgres: str

    def __post_init__(self) -> None:
        """Prepare where the tables are."""
        super().__post_init__()
        self.table = SqlTarget(self.postgres, self.folder)
        self.catalog = {
            "type": "sql",
            "uri": self.postgres,
            "warehouse": f"s3://{self.bucket}/warehouse",
            **storage_properties(self.aws),
        }

    def writes(self) -> tuple[SinkSettings, ...]:
        """See `ClusterPipeline.writes`."""
        root = f"s3://{self.bucket}"
        waiting = f"{root}/rows-of-sql"
        function = ForeachBatch(function="cluster_functions:into_bucket", staging_path=f"{root}/rows-of-function")
        iceberg = {"table": TABLE, "catalog_name": CATALOG, "properties": self.catalog}
        return (
            *super().writes(),
            SinkSettings(name="delta", kind="delta", location=f"{root}/delta", aws=self.aws),
            SinkSettings(
                name="iceberg", kind="iceberg", location=f"iceberg://test/{TABLE}", settings=iceberg, aws=self.aws
            ),
            replace(self.table.sink_settings(staging_path=waiting), name="sql", files=waiting, aws=self.aws),
            SinkSettings(
                name="function",
                kind="foreach_batch",
                location=function.sink_location,
                files=function.staging_path,
                settings=function.to_mapping(),
                aws=self.aws,
            ),
        )

    def given(self) -> dict[str, Any]:
        """See `ClusterPipeline.given`."""
        return {**super().given(), "transform": "cluster_functions:identified"}

    def start(
        self,
        application: Path = APPLICATION,
        *,
        master: str = "",
        env: dict[str, str] | None = None,
        conf: dict[str, str] | None = None,
        **changes: Any,
    ) -> Job:
        """Start a job, with the module that its transform is in."""
        archive = self.cluster.conf["spark.submit.pyFiles"]
        target = {"path": f"{self.bucket}/function", "access": _arrow_access(self.aws)}
        return super().start(
            application,
            master=master,
            env={"PUBLISHED": json.dumps(target), **(env or {})},
            conf={"spark.submit.pyFiles": f"{archive},{FUNCTIONS}", **(conf or {})},
            **changes,
        )

    def batches(self, sink: str) -> Batches:
        """See `ClusterPipeline.batches`."""
        readers: Mapping[str, Callable[[], Batches]] = {
            "parquet": lambda: self._arrow("parquet", "id"),
            "function": lambda: self._arrow("function", "id"),
            "delta": self._delta,
            "iceberg": self._iceberg,
            "sql": lambda: by_batch(self.table.rows("_batch_id, id")),
        }
        return readers[sink]()

    def _delta(self) -> Batches:
        from deltalake import DeltaTable

        root = f"s3://{self.bucket}/delta"
        options = storage_options(root, Access(((root, self.direct),)))()
        if not DeltaTable.is_deltatable(root, options):
            return {}
        rows = DeltaTable(root, storage_options=options).to_pyarrow_table(columns=["_batch_id", "id"])
        return by_batch(zip(rows["_batch_id"].to_pylist(), rows["id"].to_pylist(), strict=True))

    def _iceberg(self) -> Batches:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(CATALOG, **{**self.catalog, **storage_properties(self.direct)})
        if not catalog.table_exists(TABLE):
            return {}
        rows = catalog.load_table(TABLE).scan(selected_fields=("_batch_id", "id")).to_arrow()
        return by_batch(zip(rows["_batch_id"].to_pylist(), rows["id"].to_pylist(), strict=True))


def assert_died(job: Job) -> None:
    """Check that a job did not end by itself."""
    assert job.process.returncode != 0
    assert "the job failed" not in job.output and "coordination-summary" not in job.output, job.output


def assert_taken_over(former: Job) -> None:
    """Let a driver go on whose leases are others' by now, and see it end without having delivered anything."""
    former.go_on()
    assert former.wait() in (1, 75), former.output


def _arrow_access(aws: AwsSettings) -> dict[str, str | None]:
    """Return what pyarrow reaches a bucket by."""
    return {
        "access_key": aws.access_key_id,
        "secret_key": aws.secret_access_key,
        "region": aws.region,
        "endpoint_override": aws.endpoint_url,
    }
