"""A source whose supervisor has runs of half a minute."""

from airflow_provider_coordination.task_groups.supervised import supervised_ingestion

dags = supervised_ingestion("specs/visits.yaml")
