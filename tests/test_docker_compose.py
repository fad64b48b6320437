"""docker-compose.yaml follows the Compose specification, and stays in step with the pins and the tree.

No container engine is needed: what only an engine would show is left to those who have one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.spark.writes import ParquetDataset

REPOSITORY = Path(__file__).resolve().parent.parent
COMPOSE = REPOSITORY / "docker-compose.yaml"
AIRFLOW = [
    "airflow-init",
    "airflow-api-server",
    "airflow-scheduler",
    "airflow-dag-processor",
    "airflow-triggerer",
]
SPARK = ["spark-master", "spark-worker-1", "spark-worker-2"]
RUNS_ONCE = {"airflow-init", "minio-init"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())


def test_file_follows_the_compose_specification() -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    result = subprocess.run([*checker, str(COMPOSE)], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr


def test_stack_is_complete(compose: dict[str, Any]) -> None:
    others = ["postgres", "kinesis", "dynamodb", "minio", "minio-init"]
    assert sorted(compose["services"]) == sorted(AIRFLOW + SPARK + others)


def test_airflow_is_the_pinned_version(compose: dict[str, Any]) -> None:
    for name in AIRFLOW:
        base = re.search(r"^FROM apache/airflow:([\d.]+)-python", _image(compose, name), re.MULTILINE)
        assert base is not None
        assert base[1] == _pin("apache-airflow")


def test_spark_is_the_pinned_pyspark(compose: dict[str, Any]) -> None:
    assert _pin("pyspark") == _pin("pyspark-client")
    for name in SPARK:
        assert "--requirement /opt/coordination/requirements/base.txt" in _image(compose, name)
        assert compose["services"][name]["command"][0] == "spark-class"


def test_airflow_and_spark_share_one_image(compose: dict[str, Any]) -> None:
    assert len({_image(compose, name) for name in AIRFLOW + SPARK}) == 1


def test_kinesis_is_the_one_of_the_tests(compose: dict[str, Any]) -> None:
    script = (REPOSITORY / "tools" / "servers.sh").read_text()
    fetched = re.search(r"^KINESIS_LOCAL=(\S+)$", script, re.MULTILINE)
    assert fetched is not None
    assert compose["services"]["kinesis"]["image"] == f"ghcr.io/etspaceman/kinesis-mock:{fetched[1]}"


def test_its_dynamodb_is_the_one_of_the_tests(compose: dict[str, Any]) -> None:
    server = compose["services"]["dynamodb"]
    assert server["image"] == f"ministackorg/ministack:{_pin('ministack', 'ministack.txt')}"
    assert server["environment"]["SERVICES"] == "dynamodb"


def test_every_image_is_pinned(compose: dict[str, Any]) -> None:
    assert {*AIRFLOW, *SPARK} <= {*compose["services"]}
    for service in compose["services"].values():
        tag = service["image"].rpartition(":")[2]
        assert tag != service["image"]
        assert tag != "latest"


@pytest.mark.parametrize("name", AIRFLOW + SPARK)
def test_package_and_its_applications_are_mounted(compose: dict[str, Any], name: str) -> None:
    mounts = _mounts(compose, name)
    assert mounts["./airflow_provider_coordination"] == "/opt/coordination/airflow_provider_coordination"
    assert mounts["./spark_apps"] == "/opt/coordination/spark_apps"


@pytest.mark.parametrize("name", AIRFLOW)
def test_airflow_sees_the_dags(compose: dict[str, Any], name: str) -> None:
    assert _mounts(compose, name)["./dags"] == "/opt/airflow/dags"


def test_every_mount_is_in_the_tree_or_a_named_volume(compose: dict[str, Any]) -> None:
    mounts = [(name, source) for name in compose["services"] for source in _mounts(compose, name)]
    assert mounts
    for name, source in mounts:
        assert source in compose["volumes"] or (REPOSITORY / source).is_dir(), f"{name}: {source}"


def test_every_service_has_a_health_check(compose: dict[str, Any]) -> None:
    silent = {name for name, service in compose["services"].items() if "healthcheck" not in service}
    assert silent == RUNS_ONCE


def test_each_service_waits_for_a_possible_condition(compose: dict[str, Any]) -> None:
    waits = [
        (name, other, wait["condition"])
        for name, service in compose["services"].items()
        for other, wait in service.get("depends_on", {}).items()
    ]
    assert waits
    for name, other, condition in waits:
        finished = "service_completed_successfully" if other in RUNS_ONCE else "service_healthy"
        assert condition == finished, f"{name} -> {other}"


def test_connections_are_readable_by_airflow(compose: dict[str, Any]) -> None:
    environment = compose["services"]["airflow-scheduler"]["environment"]
    coordination = json.loads(environment["AIRFLOW_CONN_COORDINATION_DEFAULT"])
    spark = json.loads(environment["AIRFLOW_CONN_SPARK_DEFAULT"])
    aws = json.loads(environment["AIRFLOW_CONN_AWS_DEFAULT"])

    assert coordination["conn_type"] == "coordination"
    assert coordination["extra"]["store"] == "sql"
    assert coordination["extra"]["url"].startswith("postgresql://postgres/")
    assert coordination["password"]
    assert spark["host"] == "spark://spark-master:7077"
    for service in ("kinesis", "dynamodb", "minio"):
        assert f"http://{service}:" in json.dumps(aws["extra"]["service_config"])


def test_jobs_write_to_the_created_bucket(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    said = re.search(r"dags trigger kinesis_ingestion --conf\n#\s+'(.+)'$", COMPOSE.read_text(), re.MULTILINE)
    assert said is not None
    conf = json.loads(said[1])
    parameters = re.findall(
        r'^ +"(\w+)": Param\(', (REPOSITORY / "dags" / "kinesis_ingestion.py").read_text(), re.MULTILINE
    )
    assert set(conf) <= set(parameters)
    [bucket] = re.findall(r"mc mb --ignore-existing lake/(\S+)", "".join(compose["services"]["minio-init"]["command"]))
    assert conf["output_path"].startswith(f"s3://{bucket}/")
    connection = compose["services"]["airflow-scheduler"]["environment"]["AIRFLOW_CONN_AWS_DEFAULT"]
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", _with_defaults(connection))

    dataset = ParquetDataset(conf["output_path"], aws_conn_id=conf["output_conn_id"])
    aws = dataset.connect(AirflowConnections()).aws

    minio = {name: _with_defaults(value) for name, value in compose["services"]["minio"]["environment"].items()}
    assert aws is not None
    assert aws.endpoint_url == "http://minio:9000"
    assert (aws.access_key_id, aws.secret_access_key) == (minio["MINIO_ROOT_USER"], minio["MINIO_ROOT_PASSWORD"])


def test_jobs_of_a_run_get_cores_concurrently(compose: dict[str, Any]) -> None:
    workers = [compose["services"][name]["command"] for name in SPARK[1:]]
    cores = sum(int(command[command.index("--cores") + 1]) for command in workers)
    options = compose["services"]["spark-master"]["environment"]["SPARK_MASTER_OPTS"]
    of_a_job = int(options.removeprefix("-Dspark.deploy.defaultCores="))
    [jobs] = re.findall(r"^WORKERS = (\d+)$", (REPOSITORY / "dags" / "kinesis_ingestion.py").read_text(), re.MULTILINE)
    assert int(jobs) * of_a_job <= cores


def _with_defaults(text: str) -> str:
    """Return a text of the file with the defaults of all variables."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def _image(compose: dict[str, Any], name: str) -> str:
    return str(compose["services"][name]["build"]["dockerfile_inline"])


def _mounts(compose: dict[str, Any], name: str) -> dict[str, str]:
    """Return the targets of a service's volumes, by source."""
    mounts = (volume.split(":") for volume in compose["services"][name].get("volumes", []))
    return {source: target for source, target, *_ in mounts}


def _pin(distribution: str, file: str = "base.txt") -> str:
    pins = (REPOSITORY / "requirements" / file).read_text()
    found = re.search(rf"^{re.escape(distribution)}==(\S+)$", pins, re.MULTILINE)
    assert found is not None, f"{distribution} is not pinned"
    return found[1]
