"""What Spark finds by this package's name: the data source `coordinated_kinesis`, known without being registered."""

from __future__ import annotations

from airflow_provider_coordination.spark.kinesis.data_source import CoordinatedKinesis as DefaultSource

__all__ = ["DefaultSource"]
