"""The connections of the demo's Airflow, and a Spark configuration for a small machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from demo.local_kinesis import REGION

OWNERSHIP_TIMEOUT_SECONDS = 20
SAFETY_MARGIN_SECONDS = 2


def connections(
    store_url: str,
    endpoint_url: str,
    *,
    service: str = "kinesis",
    master: str = "local[1]",
    bucket: AwsSettings | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the three connections of the DAG, in Airflow's JSON form.

    :param store_url: the URL of the SQL store that holds the partitions.
    :param endpoint_url: the URL of the server of the source.
    :param service: what that server is, as boto3 names it.
    :param master: the Spark master. By default each job has one slot: it reads all its shards at the same time, with
        half as many Python processes.
    :param bucket: how to reach the bucket of the output; None if the output is not in a bucket.
    """
    services = {service: {"endpoint_url": endpoint_url}}
    if service == "dynamodb":
        services["dynamodbstreams"] = services[service]
    if bucket is not None:
        services["s3"] = {"endpoint_url": str(bucket.endpoint_url)}
    return {
        "coordination_default": {
            "conn_type": "coordination",
            "extra": {
                "store": "sql",
                "url": store_url,
                "ownership_timeout": OWNERSHIP_TIMEOUT_SECONDS,
                "safety_margin": SAFETY_MARGIN_SECONDS,
            },
        },
        "aws_default": {
            "conn_type": "aws",
            # The Kinesis server accepts any keys; Airflow warns about short ones.
            "login": "local-access-key" if bucket is None else bucket.access_key_id,
            "password": "local-secret-key" if bucket is None else bucket.secret_access_key,
            "extra": {"region_name": REGION, "service_config": services},
        },
        "spark_default": {"conn_type": "spark", "host": master, "extra": {"deploy-mode": "client"}},
    }


def write_spark_conf(folder: Path, scratch: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Write a Spark configuration; return the variables by which Spark finds it.

    :param folder: the folder for it; it is created.
    :param scratch: the folder for files that a killed Spark leaves. Its path must be short, since it holds sockets.
    :param more: additional settings.
    """
    folder.mkdir(parents=True)
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        # A driver that runs for a minute starts faster without the second compiler.
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.io.tmpdir={scratch}",
        **more,
    }
    lines = [f"{name} {value}" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    return {
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(scratch),
    }
