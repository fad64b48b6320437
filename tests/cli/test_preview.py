"""`airflow-coordination preview`: records with their columns for people and scripts, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from tests.cli.conftest import Shell
from tests.support.kinesis_server.clock import RealClock
from tests.support.s3_server import DENIED, S3Server

WRITES = {"parquet": {"path": "/data/lake"}}


@pytest.fixture
def write_spec(tmp_path: Path) -> Any:
    def write(reads: Any, **options: Any) -> str:
        file = tmp_path / "spec.json"
        file.write_text(json.dumps({"version": 1, "source": "clicks", "reads": reads, "writes": WRITES, **options}))
        return str(file)

    return write


@pytest.fixture
def lines(tmp_path: Path, write_spec: Any) -> str:
    """A spec that reads lines of files, one of which is no JSON."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": "1", "amount": 1.5}\nno JSON\n{"id": "\\u001b[31m"}\n')
    return write_spec({"s3": {"paths": str(tmp_path / "in")}}, schema="id STRING, amount DOUBLE")


def connection_of(settings: AwsSettings) -> str:
    extra = {"region_name": settings.region, "endpoint_url": settings.endpoint_url}
    login = {"login": settings.access_key_id, "password": settings.secret_access_key}
    return json.dumps({"conn_type": "aws", "extra": extra, **login})


def test_records_are_shown_below_their_columns(shell: Shell, lines: str, tmp_path: Path) -> None:
    shown = shell("preview", lines, store=False)
    assert (shown.exit_code, shown.err) == (0, "")
    assert shown.out.splitlines() == [
        "columns of source clicks",
        "  _origin  string",
        "  data     binary",
        "  id       STRING                    from the payload",
        "  amount   DOUBLE                    from the payload",
        "record 1",
        f"  _origin  {tmp_path}/in/a.json",
        '  data     {"id": "1", "amount": 1.5}',
        "  id       1",
        "  amount   1.5",
        "record 2  bad: the payload is not one JSON object",
        f"  _origin  {tmp_path}/in/a.json",
        "  data     no JSON",
        "record 3",
        f"  _origin  {tmp_path}/in/a.json",
        '  data     {"id": "\\u001b[31m"}',
        "  id       \\x1b[31m",
        "  amount   null",
    ]


def test_script_gets_one_json_object(shell: Shell, lines: str) -> None:
    [found] = shell("preview", lines, "--records", "2", "--json", store=False).records
    assert set(found) == {"source", "kind", "columns", "rows", "notes", "nothing"}
    assert [row["error"] for row in found["rows"]] == ["", "the payload is not one JSON object"]
    assert found["rows"][0]["values"]["amount"] == 1.5


def test_notes_are_no_results(shell: Shell, tmp_path: Path, write_spec: Any) -> None:
    (tmp_path / "a.json").write_text("{}\n")
    spec = write_spec({"s3": {"paths": str(tmp_path / "a.json")}}, transform="my_project.transforms:clean")
    shown = shell("preview", spec, store=False)
    assert shown.err == (
        "note: 'transform' needs Spark: these are the records that 'my_project.transforms:clean' receives\n"
    )


def test_source_without_records_is_an_error(shell: Shell, tmp_path: Path, write_spec: Any) -> None:
    shown = shell("preview", write_spec({"s3": {"paths": str(tmp_path), "include": "*.csv"}}), store=False)
    assert shown.exit_code == 1
    assert "error: source 'clicks': none of the first 1 objects" in shown.err


@pytest.mark.parametrize("options", [("--records", "0"), ("--max-bytes", "0"), ("--seconds", "1000")])
def test_limits_are_checked(shell: Shell, lines: str, options: tuple[str, ...]) -> None:
    shown = shell("preview", lines, *options, store=False)
    assert (shown.exit_code, shown.out) == (2, "")
    assert f"'{options[0]}'" in shown.err


def test_missing_spec_is_named(shell: Shell, tmp_path: Path) -> None:
    shown = shell("preview", str(tmp_path / "gone.yaml"), store=False)
    assert shown.exit_code == 2 and "gone.yaml' cannot be read" in shown.err


def test_undefined_connection_is_named(shell: Shell, write_spec: Any) -> None:
    shown = shell("preview", write_spec({"s3": {"paths": "s3://bucket/in/", "aws_conn_id": "gone"}}), store=False)
    assert shown.exit_code == 2 and "'gone'" in shown.err


@pytest.mark.integration
def test_stream_of_a_server_is_previewed(
    shell: Shell, write_spec: Any, kinesis_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = kinesis_server.account(clock=RealClock())
    account.client().create_stream(StreamName="clicks", ShardCount=2)
    account.client().get_waiter("stream_exists").wait(StreamName="clicks")
    monkeypatch.setenv("AIRFLOW_CONN_STREAMS", connection_of(account.settings()))
    spec = write_spec({"kinesis": {"streams": "clicks", "aws_conn_id": "streams"}}, schema="id STRING")
    empty = shell("preview", spec, store=False)
    assert empty.exit_code == 1
    assert "error: source 'clicks': stream 'clicks' has no record of the last hour" in empty.err
    for number in range(20):
        data = json.dumps({"id": f"click-{number}"}).encode()
        account.client().put_record(StreamName="clicks", PartitionKey=str(number), Data=data)
    [found] = shell("preview", spec, "--json", store=False).records
    assert len(found["rows"]) == 10
    assert all(row["values"]["id"].startswith("click-") for row in found["rows"])


@pytest.mark.integration
def test_bucket_of_a_server_is_previewed(
    shell: Shell, write_spec: Any, s3: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_of(s3.settings))
    monkeypatch.setenv("AIRFLOW_CONN_STRANGER", connection_of(s3.settings_of(*DENIED)))
    s3.client().put_object(Bucket=s3_bucket, Key="in/a.csv", Body=b"id,name\n1,ann\n2,bob\n")
    reads = {"paths": f"s3://{s3_bucket}/in/", "format": "csv", "aws_conn_id": "lake"}
    [found] = shell("preview", write_spec({"s3": reads}), "--json", store=False).records
    assert [(row["values"]["id"], row["values"]["name"]) for row in found["rows"]] == [("1", "ann"), ("2", "bob")]
    assert found["rows"][0]["values"]["_origin"] == f"s3://{s3_bucket}/in/a.csv"
    empty = shell("preview", write_spec({"s3": {**reads, "paths": f"s3://{s3_bucket}/out/"}}), store=False)
    assert f"there is no object at s3://{s3_bucket}/out/" in empty.err
    denied = shell("preview", write_spec({"s3": {**reads, "aws_conn_id": "stranger"}}), store=False)
    assert denied.exit_code == 2 and "s3:ListBucket" in denied.err


@pytest.mark.integration
def test_announced_objects_are_previewed_without_their_queue(
    shell: Shell, write_spec: Any, s3: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_of(s3.settings))
    s3.client().put_object(Bucket=s3_bucket, Key="in/a.json", Body=b'{"id": "1"}\n')
    queue = "https://sqs.eu-west-1.amazonaws.com/123456789012/no-such-queue"
    reads = {"paths": f"s3://{s3_bucket}/in/", "queue": queue, "aws_conn_id": "lake"}
    [found] = shell("preview", write_spec({"s3": reads}, schema="id STRING"), "--json", store=False).records
    assert found["rows"][0]["values"]["id"] == "1"
