"""A supervised source whose job is disturbed by hand."""

from airflow_provider_coordination.task_groups.supervised import supervised_ingestion

dags = supervised_ingestion("specs/parcels.yaml")
