"""What the demo's Airflow and Spark are told: connections, and a Spark configuration for a small machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from demo.local_kinesis import REGION

OWNERSHIP_TIMEOUT_SECONDS = 20
SAFETY_MARGIN_SECONDS = 2


def connections(
    store_url: str, endpoint_url: str, *, master: str = "local[1]", bucket: AwsSettings | None = None
) -> dict[str, dict[str, Any]]:
    """Return the three connections of the DAG, in Airflow's JSON form.

    :param store_url: of the SQL store that holds the partitions.
    :param endpoint_url: of the Kinesis server.
    :param master: Spark's. By default one slot a job: it reads all its shards at the same time, and starts half as many
        Python processes.
    :param bucket: how the bucket of the output is reached; None if it is no bucket.
    """
    services = {"kinesis": {"endpoint_url": endpoint_url}}
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
            # The Kinesis server takes any keys; Airflow warns of short ones.
            "login": "local-access-key" if bucket is None else bucket.access_key_id,
            "password": "local-secret-key" if bucket is None else bucket.secret_access_key,
            "extra": {"region_name": REGION, "service_config": services},
        },
        "spark_default": {"conn_type": "spark", "host": master, "extra": {"deploy-mode": "client"}},
    }


def write_spark_conf(folder: Path, scratch: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Write a Spark configuration; return the variables by which Spark finds it.

    :param folder: where to; made if it is absent.
    :param scratch: for whatever Spark leaves behind when it is killed. A short path: sockets are made in it.
    :param more: more of it.
    """
    folder.mkdir(parents=True)
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        # A driver that lives for a minute is started sooner without the second compiler.
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
