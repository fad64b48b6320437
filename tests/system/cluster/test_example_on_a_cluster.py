"""The example of the manual runs unchanged on a cluster: the operator ships the package to executors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from demo.local_kinesis import LocalKinesis
from tests.airflow.conftest import REPOSITORY, run_dag
from tests.support.airflow_dags import DagBag
from tests.support.bucket_readers import ArrowReader
from tests.support.s3_server import ALLOWED, REGION, S3Server
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_job import Pipeline

DAG = "clicks_on_a_cluster"


def test_manual_example_delivers_each_record_once(
    connect: Callable[..., None],
    cluster: SparkCluster,
    kinesis: LocalKinesis,
    kinesis_stream: Callable[[int], str],
    s3: S3Server,
    s3_bucket: str,
    postgres_url: str,
    tmp_path: Path,
) -> None:
    pipeline = Pipeline(kinesis, kinesis_stream(2), tmp_path, postgres_url)
    pipeline.send(10)
    services = {"kinesis": {"endpoint_url": kinesis.endpoint_url}, "s3": {"endpoint_url": s3.endpoint_url}}
    aws = {"region_name": REGION, "service_config": services}
    connect("aws_default", "aws", login=ALLOWED[0], password=ALLOWED[1], extra=aws)
    connect("coordination_default", "coordination", extra={"store": "sql", "url": postgres_url})
    connect("spark_default", "spark", host=cluster.master_url, extra={"deploy-mode": "client"})
    example, *_ = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / "docs" / "clusters.md").read_text(), re.M | re.S)
    ours = {'"clicks"': f'"{pipeline.stream}"', "s3://lake/": f"s3://{s3_bucket}/", "JOBS = 2": "JOBS = 1"}
    for theirs, its in ours.items():
        assert theirs in example
        example = example.replace(theirs, its)
    (tmp_path / "example.py").write_text(example)
    cluster.add_worker(cores=2)  # what each of its executors has

    done = run_dag(DagBag(str(tmp_path / "example.py")).dags[DAG])

    assert done.state == "success"
    found = ArrowReader(s3).read(f"{s3_bucket}/clicks")
    assert sum(found.values(), Counter()) == dict.fromkeys(pipeline.sent, 1)
