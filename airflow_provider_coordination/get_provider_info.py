"""The description of this provider for Airflow: the connection type with its form, the options and the classes."""

from __future__ import annotations

from typing import Any

from airflow_provider_coordination import __version__

PACKAGE = "airflow-provider-coordination"
INTEGRATION = "Coordinated ingestion"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description, as `airflow/provider_info.schema.json` defines it."""
    return {
        "package-name": PACKAGE,
        "name": INTEGRATION,
        "description": "Coordinated ingestion with Spark: leased partitions, exactly-once delivery.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": INTEGRATION,
                "tags": ["service"],
            }
        ],
        "operators": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [
                    "airflow_provider_coordination.operators.acknowledge",
                    "airflow_provider_coordination.operators.create_partitions",
                    "airflow_provider_coordination.operators.interval_events",
                    "airflow_provider_coordination.operators.prepared_jobs",
                    "airflow_provider_coordination.operators.partitions",
                    "airflow_provider_coordination.operators.reopen_partitions",
                    "airflow_provider_coordination.operators.shard_sync",
                    "airflow_provider_coordination.operators.maintain_table",
                    "airflow_provider_coordination.operators.audit",
                    "airflow_provider_coordination.operators.spark_submit",
                    "airflow_provider_coordination.operators.supervise",
                    "airflow_provider_coordination.operators.supervisor",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [
                    "airflow_provider_coordination.sensors.acknowledgments",
                    "airflow_provider_coordination.sensors.intervals",
                    "airflow_provider_coordination.sensors.partitions",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [
                    "airflow_provider_coordination.triggers.partitions",
                    "airflow_provider_coordination.triggers.supervisor",
                    "airflow_provider_coordination.triggers.supervisor",
                    "airflow_provider_coordination.triggers.partitions",
                ],
            }
        ],
        "hooks": [
            {
                "integration-name": INTEGRATION,
                "python-modules": ["airflow_provider_coordination.hooks.coordination"],
            }
        ],
        "extra-links": [
            "airflow_provider_coordination.links.JobLogLink",
            "airflow_provider_coordination.links.SparkUiLink",
            "airflow_provider_coordination.links.LeasesLink",
        ],
        "task-decorators": [
            {
                "name": "acknowledges",
                "class-name": "airflow_provider_coordination.decorators.acknowledges_task",
            },
            {
                "name": "partitions",
                "class-name": "airflow_provider_coordination.decorators.partitions_task",
            },
        ],
        # The plugin has an entry point of its own. Airflow only searches plugins here if it is configured to, and would
        # then report that it found the plugin twice.
        "connection-types": [
            {
                "connection-type": "coordination",
                "hook-class-name": "airflow_provider_coordination.hooks.coordination.CoordinationHook",
                "hook-name": "Coordination",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "port", "schema"],
                    "relabeling": {"login": "Database login", "password": "Database password"},
                    "placeholders": {
                        "login": "added to the URL; leave empty for SQLite",
                        "password": "added to the URL; leave empty for SQLite",
                    },
                },
                "conn-fields": CONN_FIELDS,
            }
        ],
        "config": {"coordination": {"description": "Coordinated ingestion.", "options": CONFIG_OPTIONS}},
    }


# `in_memory` is left out: two tasks would not share its partitions.
CONN_FIELDS: dict[str, dict[str, Any]] = {
    "store": {
        "label": "Store",
        "description": "The kind of store: sql, dynamodb, or a kind that another distribution registers.",
        "schema": {"type": "string", "examples": ["sql", "dynamodb"], "default": "sql"},
    },
    "url": {
        "label": "URL",
        "description": (
            "SQLAlchemy URL, such as sqlite:////var/lib/coordination.db or postgresql://host/database. "
            "Every Airflow worker and Spark driver must reach it. Put the password into the field below."
        ),
        "schema": {"type": ["string", "null"], "default": None},
    },
    "table": {
        "label": "Table",
        "description": "The table of the partitions; created if absent. Default: coordination_partition.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "region": {
        "label": "AWS region",
        "description": "The region of the DynamoDB store, and of Kinesis if nothing else names one.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "prefix": {
        "label": "Prefix",
        "description": "Separates installations that share the store.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "ownership_timeout": {
        "label": "Ownership timeout (seconds)",
        "description": (
            "How long a lease runs without renewal; at least four safety margins. "
            "Default: [coordination] ownership_timeout, which is 60."
        ),
        "schema": {"type": ["number", "null"], "default": None},
    },
    "safety_margin": {
        "label": "Safety margin (seconds)",
        "description": (
            "By how much the clocks of the machines may differ. Default: [coordination] safety_margin, which is 2."
        ),
        "schema": {"type": ["number", "null"], "default": None},
    },
    "max_attempts": {
        "label": "Failures before a wait",
        "description": (
            "The number of failures in a row after which a partition waits before its next retry: a minute at first "
            "and longer each time. Default: [coordination] max_attempts, which is 3."
        ),
        "schema": {"type": ["integer", "null"], "default": None, "minimum": 1},
    },
    "max_closed_count": {
        "label": "Waits before parking",
        "description": (
            "The number of waits in a row after which a failing partition is parked: only a user reopens it. "
            "Default: [coordination] max_closed_count, which is 8."
        ),
        "schema": {"type": ["integer", "null"], "default": None, "minimum": 0},
    },
    "history_days": {
        "label": "History (days)",
        "description": (
            "How long the history of leases is kept for the pages of the UI; 0 for no history. Default: 7."
        ),
        "schema": {"type": ["number", "null"], "default": None, "minimum": 0, "maximum": 365},
    },
    "aws_conn_id": {
        "label": "DynamoDB: AWS connection",
        "description": "Keys, role, region and endpoint. Default: the AWS default credential chain.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "endpoint_url": {
        "label": "DynamoDB: endpoint URL",
        "description": "The URL to send requests to instead of the default, such as a VPC endpoint.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "sts_role_arn": {
        "label": "DynamoDB: role",
        "description": "The ARN of a role to assume.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "sts_external_id": {
        "label": "DynamoDB: external id",
        "description": "The external id that the role's trust policy requires, if it does.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "skip_table_creation": {
        "label": "DynamoDB: skip table creation",
        "description": "Only check the table; create and change nothing.",
        "schema": {"type": ["boolean", "null"], "default": None},
    },
    "ttl": {
        "label": "DynamoDB: TTL",
        "description": "How long completed partitions are kept: a duration such as P30D, or seconds. Default: forever.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "provisioned_read_capacity_units": {
        "label": "DynamoDB: read capacity units",
        "description": "The capacity of a new table and of its index; set both capacities. Default: on-demand.",
        "schema": {"type": ["integer", "null"], "default": None},
    },
    "provisioned_write_capacity_units": {
        "label": "DynamoDB: write capacity units",
        "description": "The capacity of a new table and of its index; set both capacities. Default: on-demand.",
        "schema": {"type": ["integer", "null"], "default": None},
    },
    "point_in_time_recovery": {
        "label": "DynamoDB: point-in-time recovery",
        "description": "Create the table with point-in-time recovery.",
        "schema": {"type": ["boolean", "null"], "default": None},
    },
    "deletion_protection": {
        "label": "DynamoDB: deletion protection",
        "description": "Create the table with deletion protection.",
        "schema": {"type": ["boolean", "null"], "default": None},
    },
    "tags": {
        "label": "DynamoDB: tags",
        "description": 'The tags of a new table, a JSON object such as {"team": "web"}.',
        "schema": {"type": ["string", "null"], "default": None},
    },
}


def _option(kind: str, default: str, example: str, description: str) -> dict[str, Any]:
    return {
        "description": description + "\n",
        "version_added": None,
        "type": kind,
        "example": example,
        "default": default,
    }


# Read by `hooks.configuration`.
CONFIG_OPTIONS: dict[str, dict[str, Any]] = {
    "ownership_timeout": _option(
        "float",
        "60",
        "120",
        "How long a lease runs without renewal, in seconds, unless the connection sets it. At least four times "
        "safety_margin.",
    ),
    "safety_margin": _option(
        "float",
        "2",
        "5",
        "By how much the clocks of the machines may differ, in seconds, unless the connection sets it.",
    ),
    "max_attempts": _option(
        "integer",
        "3",
        "5",
        "The number of failures in a row after which a partition waits before its next retry, unless the connection "
        "sets it.",
    ),
    "max_closed_count": _option(
        "integer",
        "8",
        "0",
        "How many times a failing partition waits before it is parked, unless the connection sets it. Only a user "
        "reopens a parked partition.",
    ),
    "watch_interval": _option(
        "float",
        "4",
        "30",
        "The maximum time, in seconds, between two polls of a source that tasks wait for in the triggerer.",
    ),
    "http_api": _option(
        "boolean",
        "True",
        "False",
        "Whether the API server has the routes below /coordination.",
    ),
    "ui": _option(
        "boolean",
        "True",
        "False",
        "Whether Airflow's UI has the pages that show leases. They use the routes below /coordination.",
    ),
    "viewers_may_read": _option(
        "boolean",
        "False",
        "True",
        "Whether users who may read the logs of all tasks, as Airflow's viewers may, see leases and supervisors.",
    ),
}
