"""The package that Spark searches for the data source `coordinated_kinesis`, so that it needs no registration."""

from __future__ import annotations

from airflow_provider_coordination.spark.kinesis.data_source import CoordinatedKinesis as DefaultSource

__all__ = ["DefaultSource"]
