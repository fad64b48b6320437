"""Airflow triggers: they wait for changes of a source, and do what becomes due while they wait."""
