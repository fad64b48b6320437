"""A source whose supervisor people interfere with."""

from airflow_provider_coordination.task_groups.supervised import supervised_ingestion

dags = supervised_ingestion("specs/parcels.yaml")
