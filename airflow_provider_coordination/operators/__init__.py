"""Airflow operators: thin tasks over the sources and the Spark application."""
