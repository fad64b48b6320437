"""Coordinated ingestion with Spark under Airflow: leases, exactly-once delivery, and the operators that run them."""

__version__ = "0.1.0"
