"""Credentials of a role are fetched on first use, and again before they expire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.client import AccessDeniedError, StreamNotFoundError, kinesis_client
from airflow_provider_coordination.sources.kinesis.shards import describe_stream
from tests.support.fake_aws import FakeAws, fake_aws

ROLE = "arn:aws:iam::123456789012:role/reader"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    with fake_aws() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        yield server


def describe_twice(aws: FakeAws) -> None:
    settings = AwsSettings(
        region="eu-west-1",
        endpoint_url=aws.url,
        role_arn=ROLE,
        external_id="ours",
        role_session_name="nightly",
        access_key_id="AKIA",
        secret_access_key="hush",
        max_attempts=1,
    )
    client = kinesis_client(settings)
    for _ in range(2):
        with pytest.raises(StreamNotFoundError):
            describe_stream(client, "clicks")


def test_calls_are_signed_as_a_role_assumed_once(aws: FakeAws) -> None:
    describe_twice(aws)

    [request] = aws.assumed
    assert (request["RoleArn"], request["ExternalId"]) == ([ROLE], ["ours"])
    assert request["RoleSessionName"] == ["nightly"]
    assert ["Credential=ROLE1/" in authorization for authorization in aws.authorizations] == [
        True,
        True,
    ]


def test_role_is_assumed_again_before_expiry(aws: FakeAws) -> None:
    aws.lifetime = timedelta(minutes=5)

    describe_twice(aws)

    first, second = (authorization.split("/")[0] for authorization in aws.authorizations)
    assert first != second


def test_unassumable_role_is_a_clear_error(aws: FakeAws) -> None:
    aws.denies = True

    with pytest.raises(AccessDeniedError, match=r"the role cannot be assumed.*check role_arn"):
        describe_twice(aws)
