"""The calls of a reader equal those of boto3 in signature, credentials, errors and connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, NoCredentialsError

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.client import KinesisClient, kinesis_client
from airflow_provider_coordination.sources.kinesis.reader import reading_client
from airflow_provider_coordination.sources.kinesis.records import ShardCalls, page_decoder
from tests.support.ailing_kinesis import AilingKinesis, ailing_kinesis
from tests.support.aws_wire import AwsWire, answer_of

SETTINGS = AwsSettings(
    region="eu-west-1",
    endpoint_url="http://127.0.0.1:1",
    access_key_id="AKIA",
    secret_access_key="hush",
    max_attempts=1,
)


@pytest.fixture
def sent() -> list[AWSPreparedRequest]:
    return []


def client_of(sent: list[AWSPreparedRequest], **settings: Any) -> KinesisClient:
    client = reading_client(AwsSettings(**{**vars(SETTINGS), **settings}))

    def send(request: AWSPreparedRequest, **_: Any) -> Any:
        sent.append(request)
        return answer_of(request, 200, json.dumps({"ShardIterator": "i", "Records": []}).encode())

    client.meta.events.register("before-send", send)
    return client


@pytest.mark.parametrize("token", [None, "session"])
@pytest.mark.parametrize(
    "endpoint", [None, "http://127.0.0.1:4567", "https://kinesis.example/", "https://kinesis.example:443"]
)
def test_request_is_signed_like_botocore(
    sent: list[AWSPreparedRequest], token: str | None, endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_of(sent, session_token=token, endpoint_url=endpoint).get_records(ShardIterator="ключ", Limit=10)

    [request] = sent
    headers = {name.lower(): value for name, value in request.headers.items()}
    again = AWSRequest("POST", request.url, data=request.body)
    for name in ("content-type", "x-amz-target"):
        again.headers[name] = headers[name]
    at = datetime.strptime(headers["x-amz-date"], SIGV4_TIMESTAMP).replace(tzinfo=UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_: at, raising=False)
    SigV4Auth(Credentials("AKIA", "hush", token), "kinesis", "eu-west-1").add_auth(again)
    assert headers["authorization"] == again.headers["Authorization"]
    assert headers.get("x-amz-security-token") == token


def test_calls_match_the_service_model(sent: list[AWSPreparedRequest]) -> None:
    client = client_of(sent)
    at = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)

    found = client.get_shard_iterator(StreamName="s", ShardId="1", ShardIteratorType="AT_TIMESTAMP", Timestamp=at)
    client.get_records(ShardIterator="i", Limit=5)

    assert found["ShardIterator"] == "i"
    assert [(request.headers["x-amz-target"], json.loads(request.body)) for request in sent] == [
        (
            "Kinesis_20131202.GetShardIterator",
            {"StreamName": "s", "ShardId": "1", "ShardIteratorType": "AT_TIMESTAMP", "Timestamp": 1767268800.123},
        ),
        ("Kinesis_20131202.GetRecords", {"ShardIterator": "i", "Limit": 5}),
    ]


def test_other_calls_are_left_to_boto3() -> None:
    client = reading_client(SETTINGS)
    wire = AwsWire(client)
    wire.answer("DescribeStreamSummary", {"StreamDescriptionSummary": {"StreamName": "s"}})

    assert client.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]["StreamName"] == "s"


def test_refusal_raises_the_error_of_boto3() -> None:
    raised = []
    for each in (kinesis_client(SETTINGS), reading_client(SETTINGS)):
        AwsWire(each).refuse("GetRecords", "ExpiredIteratorException")
        with pytest.raises(ClientError) as error:
            each.get_records(ShardIterator="i")
        raised.append((type(error.value).__name__, error.value.operation_name, error.value.response["Error"]))
    assert raised[0] == raised[1]


def test_missing_credentials_raise_the_error_of_boto3(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    client = reading_client(AwsSettings(region="eu-west-1", endpoint_url="http://127.0.0.1:1"))

    with pytest.raises(NoCredentialsError):
        client.get_records(ShardIterator="i")


def test_credentials_are_resolved_for_each_call(sent: list[AWSPreparedRequest]) -> None:
    credentials = Credentials("AKIA", "hush")
    client = ShardCalls(client_of(sent), credentials, page_decoder())
    client.get_records(ShardIterator="i")
    credentials.access_key = "AKIB"
    client.get_records(ShardIterator="i")

    assert [request.headers["authorization"].partition("=")[2][:4] for request in sent] == ["AKIA", "AKIB"]


@pytest.fixture
def server() -> Iterator[AilingKinesis]:
    with ailing_kinesis() as server:
        yield server


def test_caller_reuses_one_connection(server: AilingKinesis) -> None:
    client = reading_client(server.settings)

    for _ in range(5):
        client.get_records(ShardIterator="shard-0/0", within=60)
        client.get_records(ShardIterator="shard-0/0")
        client.get_shard_iterator(StreamName="s", ShardId="shard-0", ShardIteratorType="TRIM_HORIZON")

    assert server.connections == 1
