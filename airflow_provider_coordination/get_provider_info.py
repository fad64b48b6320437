"""What Airflow's provider registry is told: the connection type with its form, and where the classes are."""

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
                    "airflow_provider_coordination.operators.follow_job",
                    "airflow_provider_coordination.operators.kinesis",
                    "airflow_provider_coordination.operators.release_partitions",
                    "airflow_provider_coordination.operators.reopen_partitions",
                    "airflow_provider_coordination.operators.reset_partitions",
                    "airflow_provider_coordination.operators.maintain_table",
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
                    "airflow_provider_coordination.sensors.partitions",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": INTEGRATION,
                "python-modules": [
                    "airflow_provider_coordination.triggers.acknowledgments",
                    "airflow_provider_coordination.triggers.jobs",
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
            "airflow_provider_coordination.links.jobs.JobLogLink",
            "airflow_provider_coordination.links.jobs.SparkUiLink",
            "airflow_provider_coordination.links.leases.LeasesLink",
        ],
        "task-decorators": [
            {
                "name": "acknowledges",
                "class-name": "airflow_provider_coordination.decorators.acknowledges.acknowledges_task",
            },
            {
                "name": "partitions",
                "class-name": "airflow_provider_coordination.decorators.partitions.partitions_task",
            },
        ],
        # The plugin is an entry point of its own: Airflow does not look for plugins here unless it is told to, and then
        # it would complain of finding it twice.
        "connection-types": [
            {
                "connection-type": "coordination",
                "hook-class-name": "airflow_provider_coordination.hooks.coordination.CoordinationHook",
                "hook-name": "Coordination",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "port", "schema"],
                    "relabeling": {"login": "Database login", "password": "Database password"},
                    "placeholders": {
                        "login": "goes into the URL; leave empty for SQLite",
                        "password": "goes into the URL; leave empty for SQLite",
                    },
                },
                "conn-fields": CONN_FIELDS,
            }
        ],
        "config": {"coordination": {"description": "Coordinated ingestion.", "options": CONFIG_OPTIONS}},
    }


# `in_memory` is not offered: no two tasks would see the same partitions.
CONN_FIELDS: dict[str, dict[str, Any]] = {
    "store": {
        "label": "Store",
        "description": "Where the partitions are kept: sql, dynamodb, or a kind that another distribution registers.",
        "schema": {"type": "string", "examples": ["sql", "dynamodb"], "default": "sql"},
    },
    "url": {
        "label": "URL",
        "description": (
            "SQLAlchemy URL, such as sqlite:////var/lib/coordination.db or postgresql://host/database. "
            "Every Airflow worker and Spark driver must reach it. Leave the password to the field below."
        ),
        "schema": {"type": ["string", "null"], "default": None},
    },
    "table": {
        "label": "Table",
        "description": "Created if absent. Default: coordination_partition.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "region": {
        "label": "AWS region",
        "description": "Of the DynamoDB store, and of Kinesis where neither the task nor its AWS connection names one.",
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
            "Default: 60, or what [coordination] ownership_timeout says."
        ),
        "schema": {"type": ["number", "null"], "default": None},
    },
    "safety_margin": {
        "label": "Safety margin (seconds)",
        "description": (
            "By how much the clocks of the machines may differ. Default: 2, or what [coordination] safety_margin says."
        ),
        "schema": {"type": ["number", "null"], "default": None},
    },
    "max_attempts": {
        "label": "Failures before a rest",
        "description": (
            "After so many failures in a row a partition rests, a minute at first and longer each time. "
            "Default: 3, or what [coordination] max_attempts says."
        ),
        "schema": {"type": ["integer", "null"], "default": None, "minimum": 1},
    },
    "max_closed_count": {
        "label": "Rests before parking",
        "description": (
            "After so many rests in a row a failing partition is parked: only a person reopens it. "
            "Default: 8, or what [coordination] max_closed_count says."
        ),
        "schema": {"type": ["integer", "null"], "default": None, "minimum": 0},
    },
    "history_days": {
        "label": "History (days)",
        "description": (
            "How long it is kept who held which partition when, for the pages of the UI; 0 for no history. Default: 7."
        ),
        "schema": {"type": ["number", "null"], "default": None, "minimum": 0, "maximum": 365},
    },
    "aws_conn_id": {
        "label": "DynamoDB: AWS connection",
        "description": "Whose keys, role, region and endpoint count. Without, the AWS SDK's default chain.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "endpoint_url": {
        "label": "DynamoDB: endpoint URL",
        "description": "Another place to send the calls to, such as a VPC endpoint.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "sts_role_arn": {
        "label": "DynamoDB: role",
        "description": "The ARN of a role to assume.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "sts_external_id": {
        "label": "DynamoDB: external id",
        "description": "What the role's trust policy asks for, if it does.",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "skip_table_creation": {
        "label": "DynamoDB: skip table creation",
        "description": "Only check the table, and create and change nothing.",
        "schema": {"type": ["boolean", "null"], "default": None},
    },
    "ttl": {
        "label": "DynamoDB: TTL (seconds)",
        "description": "How long completed partitions are kept. Default: for ever.",
        "schema": {"type": ["integer", "null"], "default": None},
    },
    "provisioned_read_capacity_units": {
        "label": "DynamoDB: read capacity units",
        "description": "Of a table that is created, and of its index; give both capacities. Default: on-demand.",
        "schema": {"type": ["integer", "null"], "default": None},
    },
    "provisioned_write_capacity_units": {
        "label": "DynamoDB: write capacity units",
        "description": "Of a table that is created, and of its index; give both capacities. Default: on-demand.",
        "schema": {"type": ["integer", "null"], "default": None},
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
        "How long a lease runs without renewal, in seconds, where the connection does not say. At least four times "
        "safety_margin. A worker that dies unnoticed keeps its partitions from others for this long.",
    ),
    "safety_margin": _option(
        "float",
        "2",
        "5",
        "By how much the clocks of the machines may differ, in seconds, where the connection does not say.",
    ),
    "max_attempts": _option(
        "integer",
        "3",
        "5",
        "After how many failures in a row a partition rests, a minute at first and twice as long each time, up to an "
        "hour, where the connection does not say.",
    ),
    "max_closed_count": _option(
        "integer",
        "8",
        "0",
        "How often a failing partition rests before it is parked, where the connection does not say. A parked "
        "partition is reopened by a person alone.",
    ),
    "watch_interval": _option(
        "float",
        "4",
        "30",
        "How often, in seconds, the triggerer looks at a source that somebody waits for, at the least. A longer one "
        "costs the store less, and notices things later.",
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
    "viewers_may_look": _option(
        "boolean",
        "False",
        "True",
        "Whether those who may read the logs of all tasks, as Airflow's viewers may, see leases and supervisors. They "
        "cannot act on them: that needs the right to edit the connection.",
    ),
}
