"""Supervise the continuous ingestion of a Kinesis stream into Parquet, as the spec in `specs/clicks.yaml` defines it.

It runs unchanged with three connections: `coordination_default` (type coordination), `aws_default` and `spark_default`.
Unpause it, and it keeps jobs reading the stream. Edit the spec, and the jobs hand over to jobs with the new spec. A
folder of specs instead of a file makes one DAG for each spec.
"""

from __future__ import annotations

from airflow_provider_coordination.task_groups.supervised import supervised_ingestion

dags = supervised_ingestion("specs/clicks.yaml", doc_md=__doc__)
