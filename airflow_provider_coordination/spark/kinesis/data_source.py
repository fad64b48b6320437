"""A Spark data source: a batch read of Kinesis streams, without leases, a store or Airflow.

It reads streams as the jobs do. The range of a read is fixed when the frame is created. So a notebook, a manual
backfill or a delivery check sees the same records in every query on the frame, as long as the stream keeps them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.clock import SystemClock
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.spark.kinesis.data_source_options import FORMAT, ReadOptions, read_options
from airflow_provider_coordination.spark.spark_versions import too_old

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ModuleNotFoundError:
    raise ConfigurationError(f"the data source {FORMAT!r} {too_old()}; read the stream with a job") from None

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class CoordinatedKinesis(DataSource):
    """The data source `coordinated_kinesis`; `docs/data-source.md` describes its options and columns.

    Spark finds it automatically where this package is installed. Elsewhere, register it:
    `spark.dataSource.register(CoordinatedKinesis)`.

    :param options: the options, as Spark passes them.
    :raises ConfigurationError: naming the option, the value and the remedy.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._options = read_options(options)
        self._started_at = SystemClock().now()

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns."""
        from airflow_provider_coordination.spark.kinesis.data_source_tasks import COLUMNS

        return ", ".join(f"{name} {kind}" for name, (_, kind) in COLUMNS.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Plan the read.

        :raises ConfigurationError: if other columns are requested, or an option does not fit the current streams.
        """
        from airflow_provider_coordination.spark.kinesis.data_source_tasks import COLUMNS

        wanted = {field.name: field.dataType.simpleString().upper() for field in schema.fields}
        if list(wanted.items()) != [(name, kind) for name, (_, kind) in COLUMNS.items()]:
            raise ConfigurationError(
                f"{FORMAT}: schema ({', '.join(wanted)}) differs from the data source's ({self.schema()}): "
                "leave schema(...) out, and select what you want"
            )
        return KinesisReader(self._options, self._started_at)


class KinesisReader(DataSourceReader):
    """One read: planned on the driver, executed by tasks.

    :param options: the options of the read.
    :param started_at: when the frame was created (aware).
    """

    def __init__(self, options: ReadOptions, started_at: datetime) -> None:
        from airflow_provider_coordination.spark.kinesis.data_source_tasks import read_plan

        self._options = options
        # Here, and not in `partitions`: the tasks never get what a reader stores there.
        # Spark shows a data source nothing of the cluster. A notebook's Spark mostly runs on the driver's own machine.
        processors = len(os.sched_getaffinity(0))
        self._plan = read_plan(options, kinesis_client(options.kinesis), started_at, SystemClock(), processors)

    def partitions(self) -> list[InputPartition]:
        """Return the shards of each task."""
        return [InputPartition(number) for number in range(len(self._plan.tasks))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the shards of a task."""
        from airflow_provider_coordination.sources.kinesis.reader import shared_reading_client
        from airflow_provider_coordination.spark.kinesis.data_source_tasks import ShardReadSettings, shard_batches

        if partition.value is None:  # Spark passes None if there is no partition
            return
        reading = ShardReadSettings(
            client=shared_reading_client(self._options.kinesis),
            listed=self._plan.listed,
            page_records=self._options.page_records,
            memory_bytes=self._options.slot_memory_bytes,
            reads_on=not self._options.fail_on_data_loss,
        )
        yield from shard_batches(self._plan.tasks[partition.value], reading)
