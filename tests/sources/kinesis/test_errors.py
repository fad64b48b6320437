"""Every error of the AWS SDK becomes an error of the package that names the remedy."""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from botocore import exceptions

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.sources.kinesis.client import (
    AccessDeniedError,
    Call,
    ExpiredIteratorError,
    KinesisClient,
    KinesisUnavailableError,
    MissingCredentialsError,
    PositionRefusedError,
    ShardNotFoundError,
    StreamNotFoundError,
    StreamNotReadyError,
    ThrottledError,
    kinesis_client,
    translated,
)
from airflow_provider_coordination.sources.kinesis.shards import describe_stream

STREAM = Call("clicks", "eu-west-1", "https://kinesis")
SHARD = Call("clicks", "eu-west-1", "https://kinesis", "shard-1")


def refused(code: str, operation: str = "GetRecords") -> exceptions.ClientError:
    return exceptions.ClientError({"Error": {"Code": code, "Message": "said so"}}, operation)


@pytest.mark.parametrize(
    ("error", "call", "kind", "message"),
    [
        (
            refused("ResourceNotFoundException"),
            STREAM,
            StreamNotFoundError,
            "'clicks' does not exist in region eu-west-1",
        ),
        (refused("ResourceNotFoundException"), SHARD, ShardNotFoundError, "shard 'shard-1'"),
        (refused("ExpiredIteratorException"), SHARD, ExpiredIteratorError, "said so"),
        (refused("ResourceInUseException"), STREAM, StreamNotReadyError, "when the stream is ACTIVE"),
        (refused("InvalidArgumentException"), SHARD, PositionRefusedError, "region or account has changed"),
        (refused("ValidationException"), STREAM, ConfigurationError, "check the stream's name"),
        (refused("AccessDeniedException"), STREAM, AccessDeniedError, "check the credentials"),
        (refused("UnrecognizedClientException"), SHARD, AccessDeniedError, "check the credentials"),
        (refused("KMSAccessDeniedException"), SHARD, AccessDeniedError, "the stream's resource policy and KMS key"),
        (refused("KMSThrottlingException"), SHARD, KinesisUnavailableError, "every retry failed"),
        (refused("AccessDenied", "AssumeRole"), STREAM, AccessDeniedError, "check role_arn"),
        (
            refused("ProvisionedThroughputExceededException"),
            SHARD,
            ThrottledError,
            "every retry failed",
        ),
        (refused("InternalFailure"), SHARD, KinesisUnavailableError, "said so"),
        (exceptions.NoCredentialsError(), STREAM, MissingCredentialsError, "give access_key_id"),
        (
            exceptions.PartialCredentialsError(provider="env", cred_var="secret"),
            STREAM,
            MissingCredentialsError,
            "Partial credentials found in env",
        ),
        (
            exceptions.CredentialRetrievalError(provider="process", error_msg="no"),
            STREAM,
            AccessDeniedError,
            "could not be fetched",
        ),
        (
            exceptions.ParamValidationError(report="too long"),
            STREAM,
            ConfigurationError,
            "check the stream's name",
        ),
        (
            exceptions.EndpointConnectionError(endpoint_url="https://kinesis"),
            STREAM,
            KinesisUnavailableError,
            "check endpoint_url",
        ),
        (
            exceptions.ReadTimeoutError(endpoint_url="https://kinesis"),
            SHARD,
            KinesisUnavailableError,
            "shard-1",
        ),
    ],
)
def test_sdk_error_is_translated(error: Exception, call: Call, kind: type[Exception], message: str) -> None:
    ours = translated(error, call)

    assert type(ours) is kind
    assert message in str(ours)
    assert "clicks" in str(ours)


@pytest.mark.parametrize("code", ["InvalidSignatureException", "SignatureDoesNotMatch"])
def test_signature_refused_for_clock_skew_names_both_times(code: str) -> None:
    there = datetime.now(UTC) + timedelta(minutes=10)
    headers = {"date": format_datetime(there, usegmt=True)}
    said = {"Error": {"Code": code, "Message": "Signature expired"}, "ResponseMetadata": {"HTTPHeaders": headers}}
    ours = translated(exceptions.ClientError(said, "GetRecords"), SHARD)  # type: ignore[arg-type]
    assert type(ours) is AccessDeniedError
    assert re.search(
        rf"the clock of {socket.gethostname()} is (599|600) s behind the clock of AWS: there it is "
        rf"{there:%Y-%m-%dT%H:%M}.*: "
        r".* Signature expired; set the clock of that machine with NTP$",
        str(ours),
    )


def test_user_errors_are_distinguished_from_temporary_ones() -> None:
    assert issubclass(StreamNotFoundError, ConfigurationError)
    assert issubclass(MissingCredentialsError, ConfigurationError)
    assert issubclass(KinesisUnavailableError, SourceError)
    assert issubclass(ShardNotFoundError, SourceError)


def test_unreachable_endpoint_is_named(client: KinesisClient) -> None:
    with pytest.raises(KinesisUnavailableError, match=r"http://127\.0\.0\.1:1"):
        describe_stream(client, "clicks")


def test_missing_credentials_are_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    role = "arn:aws:iam::123456789012:role/reader"

    for settings in (AwsSettings(region="eu-west-1"), AwsSettings(region="eu-west-1", role_arn=role)):
        with pytest.raises(MissingCredentialsError, match="give access_key_id and secret_access_key"):
            describe_stream(kinesis_client(settings), "clicks")
