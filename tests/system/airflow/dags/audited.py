"""A dataset is audited, and what it lacks is read again once a person approves."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_provider_coordination.operators.approval import Approval
from airflow_provider_coordination.operators.audit import AuditOperator
from airflow_provider_coordination.spark.writes import ParquetDataset

with DAG(
    dag_id="audited",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    params={"output_path": Param(type="string")},
) as dag:
    AuditOperator(
        task_id="audit",
        source="audited",
        writes=ParquetDataset("{{ params.output_path }}"),
        repairs=Approval(),
        retries=0,
    )
