"""Airflow operators: thin tasks over the sources and the Spark application."""

from airflow_provider_coordination import airflow_names as airflow_names  # refuses an Airflow that is too old
