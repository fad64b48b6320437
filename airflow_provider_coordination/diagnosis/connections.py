"""The connection by which jobs are submitted, as Airflow knows it."""

from __future__ import annotations

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.diagnosis.findings import Finding, ok, unchecked, warning


def spark_finding(conn_id: str) -> Finding:
    """Return where jobs are submitted to by a connection."""
    name = f"connection {conn_id!r}"
    try:
        from airflow_provider_coordination.hooks.connections import airflow_connection

        connection = airflow_connection(conn_id, name, "create it, of type 'spark'")
    except ConfigurationError as failure:
        return warning("connection", str(failure), "without it jobs go to YARN")
    except Exception as failure:  # Airflow is not there, or its database; what it says may hold anything
        return unchecked("connection", f"{name} cannot be looked up: {type(failure).__name__}")
    port = f":{connection.port}" if connection.port else ""
    mode = connection.extra_dejson.get("deploy-mode") or "client"
    return ok("connection", f"{name}: {connection.host or connection.conn_type}{port}, deploy mode {mode}")
