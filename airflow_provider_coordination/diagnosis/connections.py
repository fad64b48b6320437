"""Check of the Airflow connection that submits jobs."""

from __future__ import annotations

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.diagnosis.findings import Finding, ok, unchecked, warning


def spark_finding(conn_id: str) -> Finding:
    """Return the finding for the connection that submits jobs."""
    name = f"connection {conn_id!r}"
    try:
        from airflow_provider_coordination.hooks.connections import airflow_connection

        connection = airflow_connection(conn_id, name, "create it with type 'spark'")
    except ConfigurationError as failure:
        return warning("connection", str(failure), "without it, jobs are submitted to YARN")
    except Exception as failure:  # Airflow or its database is missing; the text of the error may hold a secret
        return unchecked("connection", f"{name} cannot be looked up: {type(failure).__name__}")
    port = f":{connection.port}" if connection.port else ""
    mode = connection.extra_dejson.get("deploy-mode") or "client"
    return ok("connection", f"{name}: {connection.host or connection.conn_type}{port}, deploy mode {mode}")
