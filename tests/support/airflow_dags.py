"""Where Airflow loads and serializes DAGs, and keeps the schedule of one, in the version that is installed."""

from __future__ import annotations

from typing import Any

try:
    from airflow.dag_processing.dagbag import DagBag as DagBag
    from airflow.dag_processing.dagbag import sync_bag_to_db as sync_bag_to_db
    from airflow.serialization.serialized_objects import DagSerialization as DagSerialization
except ImportError:  # Airflow 3.1
    from airflow.models.dagbag import DagBag as DagBag
    from airflow.models.dagbag import sync_bag_to_db as sync_bag_to_db
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization  # noqa: F401


def cron_of(dag: Any) -> str:
    """Return the cron expression of a DAG's timetable, which older versions keep as it was written."""
    timetable = dag.timetable
    return str(getattr(timetable, "expression", None) or timetable.summary)
