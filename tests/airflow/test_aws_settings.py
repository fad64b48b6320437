"""AWS connections become settings that can be sent to jobs."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import aws_settings
from tests.airflow.conftest import SECRET


def test_connection_gives_keys_region_and_endpoint(connect: Any) -> None:
    connect(
        "a", "aws", login="AKIA", password=SECRET,
        extra={"region_name": "eu-west-1", "endpoint_url": "http://here:1", "aws_session_token": "t"},
    )  # fmt: skip
    assert aws_settings("a", service="kinesis") == AwsSettings(
        region="eu-west-1",
        endpoint_url="http://here:1",
        access_key_id="AKIA",
        secret_access_key=SECRET,
        session_token="t",
    )


def test_endpoint_of_the_service_precedes_the_general_one(connect: Any) -> None:
    service = {"kinesis": {"endpoint_url": "http://kinesis:1"}}
    connect("a", "aws", extra={"endpoint_url": "http://all:1", "service_config": service, "region_name": "r"})
    assert aws_settings("a", service="kinesis").endpoint_url == "http://kinesis:1"
    assert aws_settings("a", service="dynamodb").endpoint_url == "http://all:1"


@pytest.mark.parametrize(
    ("retries", "attempts"), [({"max_attempts": 3}, 4), ({"total_max_attempts": 3, "mode": "standard"}, 3), ({}, 10)]
)
def test_connection_gives_the_maximum_attempts(connect: Any, retries: Any, attempts: int) -> None:
    connect("a", "aws", extra={"config_kwargs": {"retries": retries}, "region_name": "eu-west-1"})
    assert aws_settings("a", service="kinesis").max_attempts == attempts


def test_role_keeps_its_external_id_and_session_name(connect: Any) -> None:
    role = "arn:aws:iam::123456789012:role/reader"
    extra = {"role_arn": role, "assume_role_kwargs": {"ExternalId": "x", "RoleSessionName": "n"}}
    connect("a", "aws", extra={**extra, "region_name": "eu-west-1"})
    assert aws_settings("a", service="kinesis") == AwsSettings(
        region="eu-west-1", role_arn=role, external_id="x", role_session_name="n"
    )


def test_connection_without_keys_gives_none(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    connect("a", "aws", extra={"region_name": "eu-west-1"})
    assert aws_settings("a", service="kinesis") == AwsSettings(region="eu-west-1")
    assert aws_settings(None, "eu-west-1", service="kinesis") == AwsSettings(region="eu-west-1")


@pytest.mark.parametrize(
    ("argument", "of_connection", "default", "expected"),
    [("a-1", "b-1", "c-1", "a-1"), (None, "b-1", "c-1", "b-1"), (None, None, "c-1", "c-1")],
)
def test_region_comes_from_argument_then_connection_then_default(
    connect: Any, argument: str | None, of_connection: str | None, default: str, expected: str
) -> None:
    connect("a", "aws", extra={"region_name": of_connection} if of_connection else {})
    assert aws_settings("a", argument, service="kinesis", default_region=default).region == expected


def test_missing_region_error_names_an_undefined_connection() -> None:
    with pytest.raises(ConfigurationError, match="AWS connection 'typo': it is not defined, and no region is known"):
        aws_settings("typo", service="kinesis")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({}, "AWS connection 'a': no region is known; set region_name in the task"),
        (
            {"region_name": "r", "profile_name": "dev"},
            "AWS connection 'a': 'profile_name' 'dev' refers to files",
        ),
        (
            {
                "region_name": "r",
                "role_arn": "arn:aws:iam::1:role/r",
                "assume_role_method": "assume_role_with_saml",
            },
            "AWS connection 'a': 'assume_role_method' 'assume_role_with_saml' is not supported",
        ),
        (
            {"region_name": "r", "endpoint_url": "here:1"},
            "AWS connection 'a': AWS settings: field 'endpoint_url'",
        ),
    ],
)
def test_settings_that_are_not_portable_are_refused(connect: Any, extra: dict[str, Any], message: str) -> None:
    connect("a", "aws", extra=extra)
    with pytest.raises(ConfigurationError) as error:
        aws_settings("a", service="kinesis")
    assert str(error.value).startswith(message)
