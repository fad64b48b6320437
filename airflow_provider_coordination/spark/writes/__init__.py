"""Sinks as a DAG or a spec describes them, and as jobs read them; they need neither Airflow nor Spark."""
