"""The client of Kinesis, and its errors; the only module that translates botocore's errors for Kinesis.

Every error that a user must fix is a `ConfigurationError`. Every other error is a `SourceError`, which concerns one
stream or shard and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_coordination.aws import ACCESS_CODES, AwsSettings, aws_client, clock_error
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError, SourceError
from airflow_provider_coordination.coordination.texts import sentence

if TYPE_CHECKING:
    from botocore.exceptions import ClientError


KinesisClient: TypeAlias = Any
"""A client of boto3, or `ShardCalls`. Clients are made at run time, so they have no type."""


def kinesis_client(settings: AwsSettings) -> KinesisClient:
    """Return a client of Kinesis; see `aws_client`.

    :param settings: the endpoint and the credentials.
    :raises ConfigurationError: if no region is known, or the endpoint is not a URL.
    """
    return aws_client(settings, "kinesis")


class StreamNotFoundError(ConfigurationError):
    """The stream does not exist, or is being deleted."""


class MissingCredentialsError(ConfigurationError):
    """No credentials for Kinesis were found, or they are incomplete."""


class AccessDeniedError(ConfigurationError):
    """The credentials are refused, or do not allow the call."""


class StreamGoneError(SourceError):
    """The stream of a partition was deleted; another stream may have its name."""


class StreamNotReadyError(SourceError):
    """The stream is still being created."""


class ShardNotFoundError(SourceError):
    """The shard, or its stream, is gone."""


class ExpiredIteratorError(SourceError):
    """A shard iterator was not used in time; the reader requests a new one."""


class PositionRefusedError(SourceError):
    """Kinesis does not accept the position that a shard should be read from."""


class KinesisUnavailableError(SourceError):
    """Kinesis did not respond, or a temporary error persisted after every retry."""


class QuotaExceededError(KinesisUnavailableError):
    """An operation was called more often than its quota allows."""


class IncompleteListingError(KinesisUnavailableError):
    """The listed shards do not cover every hash key exactly once, as the shards of one instant do."""


class ThrottledError(KinesisUnavailableError):
    """A shard is read more than its limits allow; Kinesis does not report by whom."""


@dataclass(frozen=True)
class Call:
    """The call that failed, for the error.

    :param stream: the stream's name.
    :param region: the region of the client.
    :param endpoint_url: where the client sends its calls.
    :param shard_id: the shard, if the call concerns one.
    """

    stream: str
    region: str
    endpoint_url: str
    shard_id: str | None = None

    def __str__(self) -> str:
        shard = f" shard '{self.shard_id}'" if self.shard_id else ""
        return f"stream '{self.stream}'{shard} in region {self.region} at {self.endpoint_url}"


@contextmanager
def kinesis_errors(client: Any, stream: str, shard_id: str | None = None) -> Iterator[None]:
    """Raise botocore's errors of the enclosed calls as errors of this package.

    :param client: the Kinesis client that makes the calls.
    :param stream: the stream that they concern.
    :param shard_id: the shard that they concern, if any.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        call = Call(stream, client.meta.region_name, client.meta.endpoint_url, shard_id)
        raise translated(error, call) from error


def translated(error: Exception, call: Call) -> CoordinationError:
    """Return this package's error for one of botocore's.

    :param error: a `BotoCoreError` or `ClientError`.
    :param call: the call that failed.
    """
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return _refusal(error, call)
    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return MissingCredentialsError(
            f"{call}: {sentence(error)}; give access_key_id and secret_access_key, or provide credentials"
            " in the AWS default credential chain (environment, shared file, instance role)"
        )
    if isinstance(error, (exceptions.CredentialRetrievalError, exceptions.TokenRetrievalError)):
        return AccessDeniedError(
            f"{call}: credentials could not be fetched: {sentence(error)}; check the credential provider"
        )
    if isinstance(error, exceptions.ParamValidationError):
        return ConfigurationError(f"{call}: {sentence(error)}; check the stream's name")
    return KinesisUnavailableError(
        f"{call}: no valid response: {sentence(error)}; check endpoint_url, region and the network"
    )


def _refusal(error: ClientError, call: Call) -> CoordinationError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    message = sentence(error)
    if error.operation_name.startswith("AssumeRole"):
        return AccessDeniedError(
            f"{call}: the role cannot be assumed: {message}; check role_arn, external_id and the role's trust policy"
        )
    if code == "ResourceNotFoundException":
        return _not_found(call, message)
    if (clock := clock_error(error.response)) is not None:
        return AccessDeniedError(f"{call}: {clock}: {message}; set the clock of that machine with NTP")
    if code in ACCESS_CODES or (code.startswith("KMS") and code != "KMSThrottlingException"):
        return AccessDeniedError(
            f"{call}: access denied: {message}; check the credentials, their policy, and the stream's resource policy "
            "and KMS key"
        )
    if code == "ExpiredIteratorException":
        return ExpiredIteratorError(f"{call}: {message}")
    if code == "ResourceInUseException":
        return StreamNotReadyError(f"{call}: {message}; try again when the stream is ACTIVE")
    if code in _BAD_REQUEST_CODES and call.shard_id is None:
        return ConfigurationError(f"{call}: {message}; check the stream's name")
    if code in _BAD_REQUEST_CODES:
        return PositionRefusedError(
            f"{call}: {message}; check whether the endpoint, region or account has changed, otherwise reset the "
            "partition"
        )
    unavailable = KinesisUnavailableError
    if code == "LimitExceededException":
        unavailable = QuotaExceededError
    elif code == "ProvisionedThroughputExceededException":
        unavailable = ThrottledError
    return unavailable(f"{call}: {message}; every retry failed")


def _not_found(call: Call, message: str) -> CoordinationError:
    if call.shard_id is None:
        return StreamNotFoundError(
            f"stream '{call.stream}' does not exist in region {call.region} at {call.endpoint_url}:"
            " check its name, the region, the account of the credentials and endpoint_url, or create it; give the"
            " ARN of a stream of another account"
        )
    return ShardNotFoundError(
        f"{call}: not found: {message}; the shard has expired, or the stream was deleted: run a shard sync"
    )


_BAD_REQUEST_CODES = frozenset({"InvalidArgumentException", "ValidationException"})
