"""The errors of objects; the only module that translates the errors of S3 and filesystems.

Every error that a user must fix is a `ConfigurationError`; a temporary one is a `SourceUnavailableError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_coordination.aws import ACCESS_CODES
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import ItemGoneError, SourceUnavailableError


class BucketNotFoundError(ConfigurationError):
    """The bucket, or the folder, does not exist."""


class ObjectAccessDeniedError(ConfigurationError):
    """The credentials are refused, or do not allow the call."""


GONE_CODES = frozenset({"404", "NoSuchKey", "NoSuchVersion", "NotFound"})
CHANGED_CODES = frozenset({"412", "PreconditionFailed"})
REFUSED_CODES = ACCESS_CODES | {
    "403",
    "AccountProblem",
    "AllAccessDisabled",
    "Forbidden",
    "InvalidAccessKeyId",
    "InvalidToken",
}


@contextmanager
def object_errors(uri: str, action: str, right: str) -> Iterator[None]:
    """Raise the errors of the enclosed calls as errors of this package.

    :param uri: the object or the path that they concern.
    :param action: what is done with it, such as `list`.
    :param right: the permission that it needs, such as `s3:ListBucket`.
    :raises ItemGoneError: if the object does not exist, or was replaced.
    :raises BucketNotFoundError: if its bucket does not exist.
    :raises AccessDeniedError: if the permission is missing.
    :raises SourceUnavailableError: for every other error: trying again may help.
    """
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        ParamValidationError,
        PartialCredentialsError,
    )

    where = f"{uri}: cannot {action}"
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        message = _sentence(error)
        if code == "NoSuchBucket":
            raise BucketNotFoundError(
                f"{where}: its bucket does not exist; check 'paths', the region and endpoint_url, or create it"
            ) from error
        if code in GONE_CODES:
            raise ItemGoneError(f"{uri} does not exist any more") from error
        if code in CHANGED_CODES:
            raise ItemGoneError(
                f"{uri} was replaced since it was listed; the new object is read as an item of its own"
            ) from error
        if code in REFUSED_CODES:
            raise ObjectAccessDeniedError(
                f"{where}: {message}; check the credentials, and that they allow {right} on it"
            ) from error
        if code in ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"):
            raise ConfigurationError(f"{where}: {message}; give the region that its bucket is in") from error
        raise SourceUnavailableError(f"{where}: {message}") from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise ObjectAccessDeniedError(
            f"{where}: {_sentence(error)}; name an AWS connection in 'aws_conn_id', or provide credentials in the "
            "AWS default credential chain (environment, shared file, instance role)"
        ) from error
    except ParamValidationError as error:
        raise ConfigurationError(f"{where}: {_sentence(error)}; check the name of its bucket") from error
    except BotoCoreError as error:
        raise SourceUnavailableError(
            f"{where}: no valid response: {_sentence(error)}; check endpoint_url, region and the network"
        ) from error
    except FileNotFoundError as error:
        raise ItemGoneError(f"{uri} does not exist any more") from error
    except PermissionError as error:
        raise ObjectAccessDeniedError(
            f"{where}: {_sentence(error)}; give the user that runs this process the permission"
        ) from error
    except OSError as error:
        raise SourceUnavailableError(f"{where}: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
