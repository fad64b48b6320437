"""Airflow triggers: they wait for what becomes of a source, and see to it that time is noticed meanwhile."""
