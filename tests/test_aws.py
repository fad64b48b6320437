"""Settings are validated on input, and make a client that retries."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings, SharedClients, aws_client
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import read_settings, write_settings
from tests.support.waiting import PATIENCE_SECONDS

FULL = {
    "region": "eu-west-1",
    "endpoint_url": "http://127.0.0.1:4568",
    "role_arn": "arn:aws:iam::123456789012:role/reader",
    "external_id": "ours",
    "role_session_name": "nightly",
    "access_key_id": "AKIA",
    "secret_access_key": "hush",
    "session_token": "hush too",
    "max_attempts": 4,
}


def settings(values: dict[str, Any]) -> AwsSettings:
    return read_settings(AwsSettings, "AWS settings", values)


def test_settings_round_trip_as_a_mapping() -> None:
    assert write_settings(settings(FULL)) == FULL


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(settings(FULL))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"regoin": "eu-west-1"}, "unknown field 'regoin'; the known fields are region, endpoint_url"),
        ({"region": 5}, "field 'region' must be text or null; got 5"),
        ({"endpoint_url": "localhost:4568"}, "field 'endpoint_url' must begin with http:// or https://"),
        ({"role_arn": "reader"}, "field 'role_arn' must be an ARN"),
        ({"max_attempts": 0}, "field 'max_attempts' must be a whole number, at least 1; got 0"),
        ({"max_attempts": "3"}, "field 'max_attempts' must be a whole number; got '3'"),
        ({"max_attempts": True}, "field 'max_attempts' must be a whole number"),
        ({"access_key_id": "AKIA"}, "field 'secret_access_key' must be given together with access_key_id"),
        (
            {"secret_access_key": "hush"},
            "field 'access_key_id' must be given together with secret_access_key",
        ),
        ({"session_token": "hush"}, "field 'access_key_id' must be given together with session_token"),
        ({"external_id": "ours"}, "field 'role_arn' must be given together with external_id"),
        ({"role_session_name": "n"}, "field 'role_arn' must be given together with role_session_name"),
    ],
)
def test_wrong_setting_is_named_with_its_remedy(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings(fields)

    assert message in str(error.value)
    assert "hush" not in str(error.value)


def test_client_makes_max_attempts_calls() -> None:
    client = aws_client(AwsSettings(region="eu-west-1", max_attempts=4), "kinesis", read_timeout_seconds=7)

    assert client.meta.config.retries == {"mode": "standard", "total_max_attempts": 4}
    assert client.meta.config.read_timeout == 7


def test_client_calls_the_configured_endpoint() -> None:
    client = aws_client(AwsSettings(region="eu-west-1", endpoint_url="http://127.0.0.1:4568"), "dynamodb")

    assert client.meta.endpoint_url == "http://127.0.0.1:4568"


def test_clients_of_one_process_are_shared_for_a_while() -> None:
    now = 0.0
    clients = SharedClients(timedelta(minutes=5), lambda: now)
    settings = AwsSettings(region="eu-west-1", access_key_id="a", secret_access_key="b")
    first = clients(settings, "kinesis")
    assert clients(replace(settings), "kinesis") is first
    assert clients(replace(settings, access_key_id="c"), "kinesis") is not first
    assert clients(settings, "dynamodb") is not first
    now = 299.0
    assert clients(settings, "kinesis") is first
    now = 300.0
    second = clients(settings, "kinesis")
    assert second is not first
    clients.clear()
    assert clients(settings, "kinesis") is not second


def test_missing_region_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    with pytest.raises(ConfigurationError, match="give a region such as 'eu-west-1'"):
        aws_client(AwsSettings(), "dynamodb")


def test_malformed_endpoint_is_a_clear_error() -> None:
    with pytest.raises(ConfigurationError, match="endpoint_url 'http://'"):
        aws_client(AwsSettings(region="eu-west-1", endpoint_url="http://"), "kinesis")


def test_module_is_imported_without_the_aws_sdk() -> None:
    check = "import sys, airflow_provider_coordination.aws; assert not {'boto3', 'botocore'} & set(sys.modules)"

    subprocess.run([sys.executable, "-c", check], check=True, timeout=PATIENCE_SECONDS)
