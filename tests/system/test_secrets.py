"""The visible traces of a running job hold no secret: log, command lines, Spark's pages, spans, store."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from dataclasses import replace
from pathlib import Path

import psutil
import sqlalchemy as sa

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.kinds import ReadsSettings
from demo.local_kinesis import LocalKinesis
from tests.support.metric_receivers import otlp_receiver
from tests.support.spark_job import Job, Pipeline

STORE, KEY, TOKEN = "store-passw0rd/of+ours", "aws-secret-key/of+ours", "aws-session-token-of-ours"
READER = "reader-passw0rd-of-ours"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_visible_traces_of_a_job_hold_no_secret(
    kinesis: LocalKinesis, java: str, postgres_url: str, tmp_path: Path
) -> None:
    url = sa.make_url(postgres_url).set(password=STORE).render_as_string(hide_password=False)
    pipeline = Pipeline(kinesis, "none", tmp_path, url)
    pipeline.coordinator().create_partitions(
        {
            name: PartitionProgress(kind="own", items=tuple({"is": item} for item in items)).to_mapping()
            for name, items in (("refused", ["good"]), ("set-aside", ["damaged", "good"]), ("away", ["away"]))
        }
    )
    with otlp_receiver() as collector:
        job = pipeline.start(
            reads=ReadsSettings(
                kind="own",
                settings={
                    "reader": "tests.support.leaky_reader:LeakyReader",
                    "reader_settings": {"password": READER},
                    "aws": write_settings(
                        replace(pipeline.kinesis_settings, secret_access_key=KEY, session_token=TOKEN)
                    ),
                },
            ),
            transform="tests.support.transforms:leaky",
            until_caught_up=False,
            idle_duration=1,
            retry_policy=RetryPolicy(max_attempts=1),
            traceparent=TRACEPARENT,
            env={"LEAK": f"{url} and {KEY}", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint},
            conf={"spark.ui.enabled": "true", "spark.ui.port": "0"},
        )
        try:
            job.wait_for("login with *** timed out")
            job.wait_for("round 1:")
            pages, commands = spark_pages(job), command_lines(job)
            job.driver().send_signal(signal.SIGTERM)
            assert job.wait() == 1, job.output
        finally:
            job.kill()
    partitions = {partition.partition_key: partition for partition in pipeline.coordinator().view.partitions()}
    refused = partitions["refused"]
    closed = refused.status is PartitionStatus.CLOSED and refused.attempts in (1, 2)
    assert closed, "it rests after its first failure, as the settings say, and not after the third"
    assert "ValueError: cannot connect with" in str(refused.last_error) and "***" in str(refused.last_error)
    assert "login with *** found it damaged" in str(vars_of(partitions["set-aside"])), "secrets were in every error"
    assert job.settings.owner in str(collector.spans) and "spark.app.id" in pages and str(job.log.stem) in commands
    seen = {
        "log": job.output,
        "summary": json.dumps(job.summary),
        "pages": pages,
        "command lines": commands,
        "spans": str(collector.spans),
        "metrics": str(collector.points),
        "store": str([vars_of(partition) for partition in partitions.values()]),
    }
    for place, text in seen.items():
        for secret in (STORE, KEY, TOKEN, READER, sa.make_url(url).render_as_string(hide_password=False)):
            assert secret not in text, f"{place} holds a secret"
    rounds = [span for span in collector.spans if span.name == "coordination.round"]
    assert rounds and {span.trace_id for span in collector.spans} == {TRACEPARENT.split("-")[1]}
    assert rounds[0].attributes["coordination.source"] == "clicks"
    assert rounds[0].attributes["coordination.landed"] == 2
    failed = next(span for span in collector.spans if span.name == "coordination.batch")
    assert (failed.status, failed.message) == ("STATUS_CODE_ERROR", "DeliveryError")


def vars_of(partition: Partition) -> dict[str, object]:
    """Return all that a partition says."""
    return {name: getattr(partition, name) for name in ("progress", "last_error", "owner")}


def spark_pages(job: Job) -> str:
    """Return what Spark shows of its environment and its work, for people and for programs."""
    [(application, ui)] = re.findall(r"spark application: (\S+) ui=(\S+)", job.output)
    paths = (f"api/v1/applications/{application}/environment", f"api/v1/applications/{application}/sql", "environment/")
    answers = []
    for path in paths:
        with urllib.request.urlopen(f"{ui}/{path}", timeout=20) as answer:
            answers.append(answer.read().decode())
    return "\n".join(answers)


def command_lines(job: Job) -> str:
    """Return the command lines of the job's processes."""
    above = psutil.Process(job.process.pid)
    found = [process.as_dict(["cmdline"])["cmdline"] or [] for process in (above, *above.children(recursive=True))]
    return "\n".join(" ".join(command) for command in found)
