"""Task groups and DAGs that ingest a source, created by one call."""

from airflow_provider_coordination import airflow_names as airflow_names  # refuses an Airflow that is too old
